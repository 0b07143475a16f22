"""argus shell, up to the shell itself, which tests/training opens."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from argus.archive.archive import JOB, Archive
from argus.common.identity import node_name
from argus.jobs.services import OperationError
from argus.verbs.shell import shell_command

OTHER = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={JOB: "sft-2"})


@pytest.fixture(autouse=True, scope="module")
def end() -> Any:
    yield
    OTHER.kill()


@pytest.mark.parametrize(
    ("state", "driver"),
    [
        ("QUEUED", {}),
        ("SUCCEEDED", {"host": node_name(), "pid": os.getpid()}),
        ("RUNNING", {"host": "other", "pid": os.getpid()}),
        ("RUNNING", {"host": node_name(), "pid": "../self"}),
        ("RUNNING", {"host": node_name(), "pid": 1}),
        ("RUNNING", {"host": node_name(), "pid": OTHER.pid}),
    ],
)
def test_a_job_without_a_shell_here(state: str, driver: dict[str, Any], tmp_path: Path) -> None:
    archive = Archive(tmp_path / "jobs" / "sft-1")
    archive.reserve()
    archive.write_json("status.json", {"state": state, "driver": driver})
    done = CliRunner().invoke(shell_command, ["sft-1", "--shared-root", str(tmp_path)])
    assert isinstance(done.exception, OperationError)
