"""argus report as people and the controller run it, in a process of its own."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from argus.archive.archive import Archive

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "jobs" / "sft-1")
    made.reserve()
    made.set_status("RUNNING", workload="sft")
    return made


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def run(*arguments: str, request: dict[str, Any] | None = None, **options: Any) -> Any:
        command = [sys.executable, "-m", "argus", "report", *arguments, "--shared-root", str(tmp_path)]
        command += ["--json"] if request is not None else []
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        return subprocess.run(command, input=json.dumps(request), text=True, check=False, **options)

    return run


def test_a_page_on_standard_output_or_in_a_file(archive: Archive, run: Run, tmp_path: Path) -> None:
    done = run(request={"submission_ids": ["sft-1"]})
    assert json.loads(done.stderr)["result"] == {"output": "", "bytes": len(done.stdout.encode())}
    assert done.stdout.startswith("<!doctype html>") and "<title>sft-1</title>" in done.stdout
    file = tmp_path / "a" / "report.html"
    file.parent.mkdir()
    done = run(str(archive.path), "-o", str(file))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "<title>sft-1</title>" in file.read_text() and [*file.parent.iterdir()] == [file]


def test_all_jobs_with_a_tag(archive: Archive, run: Run) -> None:
    for name, value in (("b", "x"), ("c", "y"), ("d", "x")):
        other = Archive(archive.jobs / name)
        other.reserve()
        other.set_status("RUNNING", tags={"sweep": value})
    done = run("--tag", "sweep=x", archive.submission_id)
    assert done.returncode == 0, done.stderr
    assert "<title>3 jobs</title>" in done.stdout and ">c<" not in done.stdout
    done = run("--tag", "sweep=z")
    assert (done.returncode, done.stdout) == (2, "") and "but 0 have these tags" in done.stderr


def test_wrong_usage(archive: Archive, run: Run) -> None:
    for names, code in (([f"job-{number}" for number in range(21)], 2), (["./jobs"], 1)):
        done = run(*names)
        assert (done.returncode, done.stdout) == (code, "")
    controller, terminal = pty.openpty()
    done = run("sft-1", stdout=terminal)
    os.close(terminal)
    os.close(controller)
    assert done.returncode == 2 and "standard output is a terminal" in done.stderr
