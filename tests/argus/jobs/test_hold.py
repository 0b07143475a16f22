from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from argus.jobs.hold import hold
from argus.jobs.registry import Registered, Registry
from argus.jobs.services import OperationError, Services
from argus.launcher.archive import Archive
from argus.launcher.queue import is_held


def no_head(address: str) -> NoReturn:
    raise AssertionError(address)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "private" / "jobs" / "sft-1")
    made.reserve()
    made.set_status("QUEUED")
    return made


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    made = Registry(tmp_path / "registry")
    made.path.mkdir()
    made.write(Registered("sft-1", 1.0, {}, str(tmp_path / "private")))
    return made


def test_holding_and_releasing(archive: Archive, registry: Registry) -> None:
    root, services = str(archive.path.parents[1]), Services(head=no_head, client=no_head, registry=registry)
    assert hold(root, "sft-1", services, held=True, check_mode=True).changed
    assert not is_held(registry.path, "sft-1")
    for held, changed, before, after in (
        (True, True, "in line\n", "held\n"),
        (True, False, "held\n", "held\n"),
        (False, True, "held\n", "in line\n"),
        (False, False, "in line\n", "in line\n"),
    ):
        answer = hold(root, "sft-1", services, held)
        assert (answer.changed, answer.result["diff"]) == (changed, {"before": before, "after": after})
        assert is_held(registry.path, "sft-1") is held


def test_only_a_job_of_this_head_that_waits(archive: Archive, registry: Registry) -> None:
    root, services = str(archive.path.parents[1]), Services(head=no_head, client=no_head, registry=registry)
    archive.set_status("RUNNING")
    with pytest.raises(OperationError, match="is RUNNING"):
        hold(root, "sft-1", services, held=True)
    with pytest.raises(OperationError, match="There is no job"):
        hold(root, "sft-2", services, held=True)
    (registry.path / "sft-1.json").unlink()
    with pytest.raises(OperationError, match="not registered"):
        hold(root, "sft-1", services, held=True)
