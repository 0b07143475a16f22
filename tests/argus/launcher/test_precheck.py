"""The check before the trainer is started: which verl would be imported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from launcher_job import CODE_ID, Setup

from argus.launcher.launch import Launcher
from argus.launcher.program_runner import precheck_problem


@pytest.fixture
def job(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def precheck(job: Setup, **env: str) -> str:
    """The problem that the launcher finds before it starts the trainer."""
    job.write_plan("ok")
    launcher = Launcher(job.archive)
    environment = {"PATH": str(job.path), "PYTHONPATH": str(job.code_path), **env}
    return precheck_problem(launcher.plan, environment, launcher.output.print_line)


def test_a_job_with_a_problem_is_not_started(job: Setup) -> None:
    (job.code_path / "mvp_marker.py").write_text('MARKER = "verl-0.9.0"\n')
    code, output = job.run("ok")
    status = job.archive.status_json()
    assert (code, status["state"], status["failure"]["kind"]) == (65, "FAILED", "import")
    assert "overrides" not in output, "the trainer was started"
    assert "'verl-0.9.0', not 'verl-0.9.1'" in status["reason"]
    assert output == job.log() and status["reason"] in output and job.has_ended()


def test_verl_from_elsewhere_on_pythonpath(job: Setup, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "verl").mkdir(parents=True)
    (other / "verl" / "__init__.py").touch()
    assert f"imported from {other}/verl/__init__.py" in precheck(job, PYTHONPATH=f"{other}:{job.code_path}")
    assert f"MVP_PRECHECK_VERL_FILE={other}/verl/__init__.py\n" in job.log()


@pytest.mark.parametrize(
    "content", [b"MARKER = 1\n", b"#" * 5000 + f"\nMARKER = '{CODE_ID}'\n".encode(), b"\xff", None]
)
def test_what_is_no_marker(job: Setup, content: bytes | None) -> None:
    marker = job.code_path / "mvp_marker.py"
    marker.unlink()
    os.mkfifo(marker) if content is None else marker.write_bytes(content)
    assert "marker is None" in precheck(job)


def test_a_marker_is_not_run(job: Setup, tmp_path: Path) -> None:
    text = f"# {CODE_ID}\nMARKER = '{CODE_ID}'  # the id\nopen({str(tmp_path / 'ran')!r}, 'w')\n"
    (job.code_path / "mvp_marker.py").write_text(text)
    # Nor does it matter what the image prints when Python starts.
    (job.code_path / "sitecustomize.py").write_text('print("Welcome to this image")\n')
    assert precheck(job) == ""
    assert not (tmp_path / "ran").exists()
