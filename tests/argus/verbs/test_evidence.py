"""argus evidence, and argus shell up to the shell itself, which tests/training opens."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from argus import cli
from argus.archive.archive import JOB_VARIABLE, Archive
from argus.jobs.registry import RegisteredJob, Registry
from argus.jobs.services import OperationError
from argus.ray.api import ALLOWED_HOST
from argus.verbs import fetch
from argus.verbs.shell import shell_command


@pytest.fixture(autouse=True)
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """This process is in a node: the verb changes its mask, and who may have its token."""
    monkeypatch.setenv("ARGUS_VERL_NODE", "head")
    monkeypatch.setenv("ARGUS_VERL_REGISTRY", str(tmp_path))
    monkeypatch.setenv(ALLOWED_HOST, "")
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_this_node_is_examined_if_ray_does_not_answer(
    archive: Archive, tmp_path: Path, ask: Callable[..., Any]
) -> None:
    code, reply = ask("evidence", submission_id="grpo-1", shared_root=str(tmp_path))
    assert (code, reply["changed"], reply["findings"]) == (0, True, [])
    assert reply["result"]["files"] > 5 and reply["result"]["archive"] == str(archive.path)
    assert "only this node was inspected" in reply["result"]["problems"][0]
    (stacks,) = archive.path.glob("debug/*-demand-head/stacks.txt")
    assert [file.stat().st_mode & 0o777 for file in (stacks, archive.path / "debug/index.jsonl")] == [0o640, 0o640]


def test_a_process_beside_all_nodes_has_no_evidence(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[..., Any]
) -> None:
    monkeypatch.delenv("ARGUS_VERL_NODE")
    code, reply = ask("evidence", submission_id="grpo-1", shared_root=str(tmp_path))
    assert (code, len(reply["findings"])) == (1, 1)
    assert not list(archive.path.glob("debug/*"))


def test_what_people_see(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def collect(job: Archive) -> dict[str, object]:
        # The address of the inventory at the submission may have the token, not that of the archive's plan.
        assert os.environ[ALLOWED_HOST] == "head.example"
        return {"archive": str(job.path), "files": 43, "nodes": ["w0"], "problems": ["w2: no answer\x1b[A"]}

    monkeypatch.setattr(fetch, "collect", collect)
    Registry().write(RegisteredJob("grpo-1", 1.0, {}, str(tmp_path), "http://head.example:8265"))
    monkeypatch.setenv("ARGUS_VERL_SHARED_ROOT_MOUNT", str(tmp_path))
    assert cli.main(["evidence", "grpo-1"]) == 0
    shown = capfd.readouterr().out
    assert "43 files from w0" in shown and "w2: no answer\\x1b[A" in shown


OTHER = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={JOB_VARIABLE: "sft-2"})


@pytest.fixture(autouse=True, scope="module")
def end() -> Any:
    yield
    OTHER.kill()


@pytest.mark.parametrize(
    ("state", "driver"),
    [
        ("QUEUED", {}),
        ("SUCCEEDED", {"host": "head", "pid": os.getpid()}),
        ("RUNNING", {"host": "other", "pid": os.getpid()}),
        ("RUNNING", {"host": "head", "pid": "../self"}),
        ("RUNNING", {"host": "head", "pid": 1}),
        ("RUNNING", {"host": "head", "pid": OTHER.pid}),
    ],
)
def test_a_job_without_a_shell_here(state: str, driver: dict[str, Any], tmp_path: Path) -> None:
    archive = Archive(tmp_path / "jobs" / "sft-1")
    archive.reserve()
    archive.write_json("status.json", {"state": state, "driver": driver})
    done = CliRunner().invoke(shell_command, ["sft-1", "--shared-root", str(tmp_path)])
    assert isinstance(done.exception, OperationError)
