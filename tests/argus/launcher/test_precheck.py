"""The check before the trainer is started: which verl would be imported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from launcher_job import CODE_ID, Setup

from argus.launcher.launch import Launcher


@pytest.fixture
def job(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def precheck(job: Setup, **env: str) -> str:
    """The problem that the launcher finds before it starts the trainer."""
    job.write_plan("ok")
    launcher = Launcher(job.archive)
    return launcher.precheck({"PATH": str(job.path), "PYTHONPATH": str(job.code_path), **env})


def test_a_job_with_a_problem_is_not_started(job: Setup) -> None:
    (job.code_path / "mvp_marker.py").write_text('MARKER = "verl-0.9.0"\n')
    code, output = job.run("ok")
    status = job.archive.status_json()
    assert (code, status["state"], status["exit_code"]) == (65, "FAILED", 65)
    assert status["failure"]["kind"] == "import"
    assert "overrides" not in output, "the trainer was started"
    assert status["reason"] == ("the snapshot's marker is 'verl-0.9.0', not 'verl-0.9.1'; stage the snapshot again")
    assert output == job.log()
    assert output.endswith(f"MVP_PRECHECK_MARKER=verl-0.9.0\nThe job was not started: {status['reason']}\n")
    assert status["ended_at"] > status["started_at"]
    assert job.has_ended()


def test_verl_from_elsewhere_on_pythonpath(job: Setup, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "verl").mkdir(parents=True)
    (other / "verl" / "__init__.py").touch()
    assert precheck(job, PYTHONPATH=f"{other}:{job.code_path}") == (
        f"verl would be imported from {other}/verl/__init__.py, not from the snapshot {job.code_path}; "
        "another entry precedes it on PYTHONPATH"
    )
    assert f"MVP_PRECHECK_VERL_FILE={other}/verl/__init__.py\n" in job.log()


def test_verl_in_the_working_directory(job: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    (job.cwd / "verl").mkdir()
    (job.cwd / "verl" / "__init__.py").touch()
    monkeypatch.chdir(job.cwd)
    assert f"imported from {job.cwd}/verl/__init__.py" in precheck(job)


def test_no_verl_at_all(job: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(job.cwd)
    assert precheck(job, PYTHONPATH="").startswith("verl would be imported from None")
    assert "MVP_PRECHECK_VERL_FILE=None\nMVP_PRECHECK_MARKER=None\n" in job.log()


def test_a_python_that_does_not_start(job: Setup) -> None:
    problem = precheck(job, PYTHONHOME="/nowhere")
    assert problem.startswith("Python cannot search for verl: ")
    assert "No module named 'encodings'" in problem


@pytest.mark.parametrize("code", ["os._exit(0)", "print(1); os._exit(0)", "print('[1]'); os._exit(0)"])
def test_a_python_that_gives_no_answer(job: Setup, code: str) -> None:
    (job.code_path / "sitecustomize.py").write_text(
        f"import os, sys\n{code.replace('; os', '; sys.stdout.flush(); os')}\n"
    )
    assert precheck(job).startswith("Python cannot search for verl: it answers ")


def refused(marker: object) -> str:
    return f"the snapshot's marker is {marker!r}, not {CODE_ID!r}; stage the snapshot again"


@pytest.mark.parametrize(
    "text",
    [
        "MARKER = 1\n",
        f"import os; MARKER = '{CODE_ID}'\n",
        f"{'#' * 5000}\nMARKER = '{CODE_ID}'\n",
        "\udcff",
    ],
)
def test_what_is_no_marker(job: Setup, text: str) -> None:
    (job.code_path / "mvp_marker.py").write_bytes(text.encode(errors="surrogateescape"))
    assert precheck(job) == refused(None)


def test_a_marker_is_not_run(job: Setup, tmp_path: Path) -> None:
    (job.code_path / "mvp_marker.py").write_text(
        f"# {CODE_ID}\nMARKER = '{CODE_ID}'  # the id\nopen({str(tmp_path / 'ran')!r}, 'w')\n"
    )
    assert precheck(job) == ""
    assert not (tmp_path / "ran").exists()


def test_a_marker_that_is_no_file(job: Setup) -> None:
    marker = job.code_path / "mvp_marker.py"
    marker.unlink()
    marker.mkdir()
    assert precheck(job) == refused(None)
    marker.rmdir()
    os.mkfifo(marker)
    assert precheck(job) == refused(None)


def test_an_image_that_prints_a_greeting_whenever_python_starts(job: Setup) -> None:
    (job.code_path / "sitecustomize.py").write_text('print("Welcome to this image")\n')
    assert precheck(job) == ""
    assert job.log().endswith(f"MVP_PRECHECK_MARKER={CODE_ID}\n")
