from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from argus import cli
from argus.archive.archive import Archive
from argus.jobs.registry import Registered, Registry
from argus.ray.api import ALLOWED_HOST
from argus.verbs import fetch


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "jobs" / "sft-1")
    made.reserve()
    return made


@pytest.fixture(autouse=True)
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """This process is in a node: the verb changes its mask, and who may have its token."""
    monkeypatch.setenv("ARGUS_VERL_NODE", "head")
    monkeypatch.setenv("ARGUS_VERL_REGISTRY", str(tmp_path))
    monkeypatch.setenv(ALLOWED_HOST, "")
    before = os.umask(0o022)
    yield
    os.umask(before)


def answer(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], **request: Any) -> tuple[int, Any]:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(request).encode())))
    code = cli.main(["evidence", "--json"])
    return code, json.loads(capfd.readouterr().out)


def test_this_node_is_examined_if_ray_does_not_answer(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    code, reply = answer(monkeypatch, capfd, submission_id="sft-1", shared_root=str(tmp_path))
    assert (code, reply["changed"], reply["findings"]) == (0, True, [])
    assert reply["result"]["files"] > 5 and reply["result"]["archive"] == str(archive.path)
    assert "only this node was inspected" in reply["result"]["problems"][0]
    (stacks,) = archive.path.glob("debug/*-demand-head/stacks.txt")
    assert [file.stat().st_mode & 0o777 for file in (stacks, archive.path / "debug/index.jsonl")] == [0o640, 0o640]


def test_a_process_beside_all_nodes_has_no_evidence(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ARGUS_VERL_NODE")
    code, reply = answer(monkeypatch, capfd, submission_id="sft-1", shared_root=str(tmp_path))
    assert code == 1 and reply["findings"][0]["problem"].startswith("This node is not up")
    assert not list(archive.path.glob("debug/*"))


def test_what_people_see(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def collect(job: Archive) -> dict[str, object]:
        # The address of the inventory at the submission may have the token, not that of the archive's plan.
        assert os.environ[ALLOWED_HOST] == "head.example"
        return {"archive": str(job.path), "files": 43, "nodes": ["w0"], "problems": ["w2: no answer\x1b[A"]}

    monkeypatch.setattr(fetch, "collect", collect)
    Registry().write(Registered("sft-1", 1.0, {}, str(tmp_path), "http://head.example:8265"))
    monkeypatch.setenv("ARGUS_VERL_SHARED_ROOT_MOUNT", str(tmp_path))
    assert cli.main(["evidence", "sft-1"]) == 0
    shown = capfd.readouterr().out
    assert "43 files from w0" in shown and "w2: no answer\\x1b[A" in shown
