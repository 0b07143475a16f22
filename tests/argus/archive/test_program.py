"""The program as it runs beside jobs, in several versions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from program import write_program

from argus.archive.archive import Archive
from argus.archive.program import PROGRAM_RECORD, Program, Runner

TELLS = """
import json, os, sys
facts = {
    "arguments": sys.argv[1:], "cwd": os.getcwd(), "leads": os.getsid(0) == os.getpid(),
    "environment": sorted(os.environ), "program": sys.argv[0],
}
with open(sys.argv[3] + "/facts.json", "w") as file:
    json.dump(facts, file)
"""
OTHER = "argus-000000000000.zip"


def facts(archive: Archive) -> dict[str, Any]:
    return dict(json.loads((archive.path / "facts.json").read_text()))


def test_it_runs_beside_the_job_and_is_not_a_part_of_it(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not swept with the job's processes, and Ray does not take it for the job's driver."""
    for name in ("ARGUS_VERL_JOB", "RAY_JOB_CONFIG_JSON_ENV_VAR", "RAY_ADDRESS"):
        monkeypatch.setenv(name, "x")
    (tmp_path / "__main__.py").write_text(TELLS)
    assert Runner(archive, Program(str(tmp_path))).start("evidence", "end").wait(30) == 0
    record = facts(archive)
    variables = {"ARGUS_VERL_JOB", "RAY_JOB_CONFIG_JSON_ENV_VAR", "RAY_ADDRESS"} & {*record.pop("environment")}
    arguments = ["launch", "evidence", str(archive.path), "end"]
    assert record == {"arguments": arguments, "cwd": "/", "leads": True, "program": str(tmp_path)}
    assert variables == {"RAY_ADDRESS"}


def test_the_launcher_needs_the_standard_library_only(tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", str(write_program(tmp_path)), "launch", "walk", "a"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr.endswith("KeyError: 'walk'\n")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The directory of a machine: the current version is this one, and there is another one."""
    made = tmp_path / "program"
    sources = write_program(tmp_path / "sources")
    with zipfile.ZipFile(made.with_suffix(".zip"), "w") as file:
        for path in sources.rglob("*.py"):
            file.write(path, path.relative_to(sources))
    made.mkdir()
    made.with_suffix(".zip").rename(made / "argus-111111111111.zip")
    (made / "current").symlink_to("argus-111111111111.zip")
    with zipfile.ZipFile(made / OTHER, "w") as file:
        file.writestr("__main__.py", TELLS)
    return made


def test_a_job_runs_the_version_with_which_it_was_submitted(programs: Path, archive: Archive) -> None:
    archive.write_json(PROGRAM_RECORD, {"version": "0.0.1", "program": OTHER})
    arguments = ["1", "0", "m", "1", "2", "a"]
    command = Program(str(programs / "current")).command(str(archive.path), "ranks", *arguments)
    subprocess.run(command, check=True)
    assert facts(archive)["program"] == str(programs / OTHER)
    assert facts(archive)["arguments"] == ["launch", "ranks", str(archive.path), *arguments]


def test_a_version_that_a_node_does_not_have_is_not_run(programs: Path, archive: Archive) -> None:
    """A job can write to its archive."""
    records = [{"program": name} for name in ("argus-222222222222.zip", f"../jobs/grpo-1/{OTHER}", "current", 7)]
    for number, text in enumerate([*map(json.dumps, records), "{"]):
        other = Archive(archive.jobs / str(number))
        other.reserve()
        (other.path / OTHER).write_text("")
        other.write_text(PROGRAM_RECORD, text)
    source = "import sys; from argus.archive.archive import Archive; from argus.archive.program import Program; "
    source += "print({Program.of_job(Archive(sys.argv[1] + str(number))).path for number in range(5)})"
    environment = {**os.environ, "PYTHONPATH": str(programs / "current")}
    command = [sys.executable, "-P", "-c", source, f"{archive.jobs}/"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str({str(programs / "argus-111111111111.zip")})
