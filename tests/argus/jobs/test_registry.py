from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from argus.io.reading import UnreadableError
from argus.jobs.registry import Registered, Registry

JOB = Registered("grpo-1", 1_700_000_000.5, {"workload": "grpo", "tags": {"ä": "\u2028"}}, "/private")


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    (tmp_path / "lib" / "jobs").mkdir(parents=True)
    return Registry(tmp_path / "lib" / "jobs")


def entry(**changes: Any) -> str:
    stored = {"submission_id": "grpo-1", "submitted_at": 1.0, "jobspec": {"workload": "grpo"}, "shared_root": "/p"}
    return json.dumps({name: value for name, value in {**stored, **changes}.items() if value != "-"})


@pytest.mark.parametrize("umask", [0, 0o077])
def test_only_the_owner_writes_and_only_the_group_reads(registry: Registry, umask: int) -> None:
    before = os.umask(umask)
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
    assert victim.read_text() == "untouched"


@pytest.mark.parametrize("name", ["../grpo-1", "/etc/passwd", "", ".", "..", "GRPO", "a\n", "a/b", "-x", "a" * 64])
def test_what_is_no_id_is_no_path(registry: Registry, name: str) -> None:
    registry.write(JOB)
    (registry.path.parent / "grpo-1.json").write_text(entry())
    assert registry.read(name) is None
    with pytest.raises(ValueError, match="is not a submission id"):
        registry.write(Registered(name, 1.0, {}, "/private"))


@pytest.mark.parametrize(
    "text",
    [
        entry(submission_id="grpo-2"),
        entry(submission_id="-"),
        entry(submitted_at="-"),
        entry(submitted_at=True),
        entry(jobspec=["a"]),
        entry(shared_root=1),
        "[]",
        "",
        "[" * 100_000,
    ],
)
def test_a_malformed_entry(registry: Registry, text: str) -> None:
    (registry.path / "grpo-1.json").write_text(text)
    with pytest.raises(UnreadableError):
        registry.read("grpo-1")
