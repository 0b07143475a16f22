"""The module code_snapshot."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.shared_root import SNAPSHOTS
from ansible_collections.argus.verl.plugins.module_utils.argus.staging.sources import source_of
from staging_snapshots import IGNORED, LEFT, TAKEN, TOKEN, put, run_module
from staging_tools import snapshot

pytestmark = pytest.mark.usefixtures("identity")


@pytest.fixture
def identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """A git without the configuration of this machine."""
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Ann")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "ann@example.com")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture
def shared_root(tmp_path: Path) -> Path:
    root = tmp_path / "shared"
    root.mkdir()
    return root


@pytest.fixture
def snapshots(shared_root: Path) -> Path:
    """Where the snapshots of the shared root lie."""
    return shared_root / SNAPSHOTS


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree of verl, with all that a snapshot must not take."""
    return put(tmp_path / "src", {**TAKEN, **LEFT, **IGNORED})


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """What a user puts over verl."""
    return put(tmp_path / "mine", {"main.py": "mine = True\n", "deep/er.py": "", "__pycache__/main.pyc": ""})


def test_the_module_reports_in_ansibles_way(shared_root: Path, snapshots: Path, tree: Path, mine: Path) -> None:
    answer = run_module(
        shared_root=str(shared_root),
        source=str(tree),
        code_id="mine",
        overlays=[{"path": str(mine), "to": "my_package"}],
        git_token=TOKEN,
        _ansible_diff=True,
    )
    assert TOKEN not in json.dumps(answer)
    expected = {
        "changed": True,
        "code_id": "mine",
        "path": str(snapshots / "mine"),
        "status": "staged",
        "notes": [],
        "verl_version": "0.10.0.dev0",
        "diff": {"before": "", "after": f"snapshot {snapshots}/mine\n"},
    }
    assert {name: answer[name] for name in expected} == expected
    refused = run_module(shared_root=str(shared_root), source=str(tree), code_id="mine")
    assert refused["failed"]
    assert "mine: contains" in refused["msg"]
    assert refused["finding"]["where"] == str(snapshots / "mine")


def test_the_module_removes_a_snapshot_that_no_job_uses_any_more(
    shared_root: Path, snapshots: Path, tree: Path
) -> None:
    snapshot(shared_root, source_of(str(tree), snapshots), "mine")
    job = put(shared_root / "jobs" / "grpo-1", {"config/job_spec.json": '{"code_path": "mine"}'})
    absent = {"shared_root": str(shared_root), "code_id": "mine", "state": "absent"}

    put(job, {"status.json": '{"state": "RUNNING"}'})
    for check in (False, True):
        refused = run_module(**absent, _ansible_check_mode=check)
        assert refused["failed"]
        assert "mine: is used by grpo-1. Wait until these jobs have ended" in refused["msg"]
    assert (snapshots / "mine" / "verl" / "__init__.py").exists()

    put(job, {"status.json": '{"state": "SUCCEEDED"}'})
    would = run_module(**absent, _ansible_check_mode=True)
    assert (would["changed"], would["status"]) == (True, "removed")
    assert (snapshots / "mine" / "verl" / "__init__.py").exists()
    removed = run_module(**absent)
    assert (removed["changed"], removed["status"]) == (True, "removed")
    assert list(snapshots.iterdir()) == []
    again = run_module(**absent)
    assert (again["changed"], again["status"]) == (False, "absent")
