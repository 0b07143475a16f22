from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from argus.io.reading import UnreadableError
from argus.jobs.registry import RegisteredJob, Registry

JOB = RegisteredJob("grpo-1", 1_700_000_000.5, {"workload": "grpo", "tags": {"ä": "\u2028"}}, "/private")


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    (tmp_path / "lib" / "jobs").mkdir(parents=True)
    return Registry(tmp_path / "lib" / "jobs")


def test_only_the_owner_writes_and_only_the_group_reads(registry: Registry) -> None:
    before = os.umask(0)
    try:
        registry.write(JOB)
    finally:
        os.umask(before)
    assert stat.S_IMODE((registry.path / "grpo-1.json").stat().st_mode) == 0o640
    assert (registry.read("grpo-1"), registry.read("grpo-2")) == (JOB, None)


def test_an_entry_replaces_a_link_instead_of_following_it(registry: Registry) -> None:
    victim = registry.path.parent / "victim"
    victim.write_text("untouched")
    (registry.path / "grpo-1.json").symlink_to(victim)
    registry.write(JOB)
    assert registry.read("grpo-1") == JOB
    (registry.path / "grpo-1.json").write_text('{"submission_id": "grpo-2"}')
    with pytest.raises(UnreadableError):
        registry.read("grpo-1")
    assert victim.read_text() == "untouched"


@pytest.mark.parametrize("name", ["../grpo-1", "", "GRPO", "a\n", "a" * 64])
def test_what_is_no_id_is_no_path(registry: Registry, name: str) -> None:
    registry.write(JOB)
    (registry.path / "grpo-1.json").rename(registry.path.parent / "grpo-1.json")
    assert registry.read(name) is None
    with pytest.raises(ValueError, match="is not a submission id"):
        registry.write(RegisteredJob(name, 1.0, {}, "/private"))
