"""The launcher in sealed memory, which nothing on a shared root can change."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from argus.jobs.program import launcher_files, launcher_program
from argus.launcher.archive import Archive
from argus.launcher.program import Program

TELLS = """
import json, os, sys
from argus_launcher import told
found = {
    "arguments": sys.argv[1:], "told": told.NAME, "cwd": os.getcwd(), "leads": os.getsid(0) == os.getpid(),
    "environment": sorted(os.environ), "isolated": sys.flags.isolated,
}
with open(sys.argv[2] + "/found.json", "w") as file:
    json.dump(found, file)
"""
FILES = {"__main__.py": TELLS, "argus_launcher/__init__.py": "", "argus_launcher/told.py": "NAME = 'sealed'"}


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "jobs" / "sft-1")
    made.reserve()
    return made


@pytest.fixture
def program() -> Iterator[Program]:
    made = Program.sealed(FILES)
    assert made.descriptor is not None
    yield made
    os.close(made.descriptor)


def test_it_runs_beside_the_job_and_is_not_a_part_of_it(
    program: Program, archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not swept with the job's processes, and Ray does not take it for the job's driver."""
    for name in ("ARGUS_VERL_JOB", "RAY_JOB_CONFIG_JSON_ENV_VAR", "RAY_ADDRESS"):
        monkeypatch.setenv(name, "x")
    # What a job could put into a home directory, or into the archive.
    (tmp_path / "argus_launcher").mkdir()
    (tmp_path / "argus_launcher" / "told.py").write_text("NAME = 'planted'")
    archive.write_text("config/launcher/__main__.py", "raise SystemExit(9)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert program.start(archive, "evidence", "stall").wait(30) == 0
    found = json.loads((archive.path / "found.json").read_text())
    variables = set(found.pop("environment"))
    assert found == {
        "arguments": ["evidence", str(archive.path), "stall"],
        "told": "sealed",
        "cwd": "/",
        "leads": True,
        "isolated": 1,
    }
    assert "RAY_ADDRESS" in variables
    assert not {"ARGUS_VERL_JOB", "RAY_JOB_CONFIG_JSON_ENV_VAR"} & variables


def test_nobody_can_change_it(program: Program) -> None:
    assert program.descriptor is not None
    with pytest.raises(PermissionError):
        os.pwrite(program.descriptor, b"x", 0)
    with pytest.raises(PermissionError):
        os.ftruncate(program.descriptor, 0)
    # Another process of the same user would open it anew.
    with pytest.raises(PermissionError), open(program.path, "r+b") as again:  # noqa: PTH123
        again.write(b"x")
        again.flush()


def test_its_own_processes_run_the_same_code(archive: Archive) -> None:
    """The steward collects evidence and calls Ray in further processes."""
    source = (
        "from argus_launcher.archive import Archive\n"
        "from argus_launcher.program import Program\n"
        "import sys\n"
        "archive = Archive(sys.argv[2])\n"
        "if sys.argv[1] == 'first':\n"
        "    own = Program.of_this_process()\n"
        "    assert own.descriptor is not None, own\n"
        "    sys.exit(own.start(archive, 'second').wait(30))\n"
        "archive.write_text('second', Program.of_this_process().path)\n"
    )
    program = Program.sealed({**launcher_files(), "__main__.py": source})
    assert program.descriptor is not None
    try:
        assert program.start(archive, "first").wait(30) == 0
    finally:
        os.close(program.descriptor)
    assert (archive.path / "second").read_text() == program.path


def test_the_launcher_runs_from_sealed_memory() -> None:
    with launcher_program() as program:
        assert program.descriptor is not None
        command = [sys.executable, "-I", "-S", program.path]
        done = subprocess.run(command, pass_fds=[program.descriptor], capture_output=True, text=True, check=False)
    assert done.returncode == 64
    assert done.stderr.startswith("usage: launcher run ARCHIVE ATTEMPT\n")
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(program.descriptor)


def test_a_program_in_an_archive_is_a_directory(archive: Archive) -> None:
    for name, text in launcher_files().items():
        archive.write_text(f"config/launcher/{name}", text)
    launcher = archive.path / "config" / "launcher"
    tells = "from argus_launcher.program import Program; print(Program.of_this_process())"
    done = subprocess.run(
        [sys.executable, "-c", tells], env={"PYTHONPATH": str(launcher)}, capture_output=True, text=True, check=True
    )
    assert done.stdout == f"{Program(str(launcher))}\n"
    assert Program(str(launcher)).arguments(archive, "keep")["args"] == [
        sys.executable,
        str(launcher),
        "keep",
        str(archive.path),
    ]
