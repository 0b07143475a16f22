"""The program as one file."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import yaml
from ansible_collections.argus.verl.plugins.plugin_utils import program_archive

from argus.archive.program import VERSION


def test_the_version_is_that_of_the_collection() -> None:
    assert yaml.safe_load((program_archive.PROGRAM.parent / "galaxy.yml").read_text())["version"] == VERSION


def test_the_program_runs_from_the_file_alone(tmp_path: Path) -> None:
    archive, job = tmp_path / "argus.zip", tmp_path / "jobs" / "sft-1"
    program_archive.write_archive(archive, program_archive.program_sources())
    job.mkdir(parents=True)
    (job / "status.json").write_text('{"state": "FAILED"}')
    command = [sys.executable, "-E", str(archive), "report", str(job)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "<title>sft-1</title>" in done.stdout and "uPlot=function" in done.stdout
    with zipfile.ZipFile(archive) as opened:
        assert {"__main__.py", "argus/cli.py", "argus/cli.pyc"} <= set(opened.namelist())


def test_a_version_that_runs_stays_itself_when_another_one_is_current(tmp_path: Path) -> None:
    """A launcher runs for weeks, and imports modules when they are needed."""
    start = b"def start():\n    print('begun', flush=True)\n    input()\n    import argus.late\n"
    sources = {"argus/__init__.py": b"", "argus/__main__.py": start, "argus/late.py": b"print(__file__)\n"}
    for name in ("first.zip", "again.zip"):
        program_archive.write_archive(tmp_path / name, sources)
    # Its name has its hash.
    assert (tmp_path / "first.zip").read_bytes() == (tmp_path / "again.zip").read_bytes()
    (tmp_path / "second.zip").write_bytes(b"another version")
    (tmp_path / "current").symlink_to("first.zip")
    command = [sys.executable, "-I", str(tmp_path / "current")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout and process.stdout.readline() == "begun\n"
        (tmp_path / "new").symlink_to("second.zip")
        (tmp_path / "new").replace(tmp_path / "current")
        assert process.communicate("\n")[0].strip() == f"{tmp_path}/first.zip/argus/late.pyc"
    assert process.returncode == 0
