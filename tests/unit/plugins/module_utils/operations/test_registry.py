from __future__ import annotations

import json
import os
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.launcher.reading import UnreadableError
from ansible_collections.argus.verl.plugins.module_utils.operations import registry as module
from ansible_collections.argus.verl.plugins.module_utils.operations.registry import Registered, Registry

JOB = Registered("grpo-1", 1_700_000_000.5, {"workload": "grpo", "tags": {"ä": "\u2028"}}, "/private")


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return Registry(tmp_path / "lib" / "jobs")


def names(registry: Registry) -> list[str]:
    return sorted(path.name for path in registry.path.iterdir())


def entry(**changes: Any) -> str:
    stored = {"submission_id": "grpo-1", "submitted_at": 1.0, "jobspec": {"workload": "grpo"}, "shared_root": "/p"}
    return json.dumps({name: value for name, value in {**stored, **changes}.items() if value != "-"})


def test_a_job_is_read_as_it_was_written(registry: Registry) -> None:
    registry.write(JOB)
    assert registry.read("grpo-1") == JOB
    assert registry.ids() == ["grpo-1"]


def test_only_the_owner_writes_and_only_the_group_reads(registry: Registry) -> None:
    before = os.umask(0)
    try:
        registry.write(JOB)
    finally:
        os.umask(before)
    assert stat.S_IMODE(registry.path.stat().st_mode) == 0o750
    assert stat.S_IMODE((registry.path / "grpo-1.json").stat().st_mode) == 0o640


def test_a_strict_umask_does_not_hide_an_entry_from_the_group(registry: Registry) -> None:
    registry.path.mkdir(parents=True)
    before = os.umask(0o077)
    try:
        registry.write(JOB)
    finally:
        os.umask(before)
    assert stat.S_IMODE((registry.path / "grpo-1.json").stat().st_mode) == 0o640


def test_an_id_is_never_registered_twice(registry: Registry) -> None:
    registry.write(JOB)
    with pytest.raises(FileExistsError):
        registry.write(Registered("grpo-1", 2.0, {"workload": "sft"}, "/other"))
    assert registry.read("grpo-1") == JOB
    assert names(registry) == ["grpo-1.json"]


def test_of_many_writers_of_one_id_one_wins(registry: Registry) -> None:
    won: list[int] = []

    def write(number: int) -> None:
        try:
            registry.write(Registered("grpo-1", float(number), {}, "/private"))
        except FileExistsError:
            return
        won.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stored = registry.read("grpo-1")
    assert stored is not None
    assert won == [int(stored.submitted_at)]
    assert names(registry) == ["grpo-1.json"]


def test_an_unknown_job_is_not_registered(registry: Registry) -> None:
    assert registry.read("grpo-1") is None
    assert registry.ids() == []
    registry.write(JOB)
    assert registry.read("grpo-2") is None


@pytest.mark.parametrize("name", ["../grpo-1", "/etc/passwd", "", ".", "..", "GRPO", "a\n", "a/b", "-x", "a" * 64])
def test_what_is_no_id_is_no_path(registry: Registry, name: str) -> None:
    registry.write(JOB)
    (registry.path.parent / "grpo-1.json").write_text(entry())
    assert registry.read(name) is None
    with pytest.raises(ValueError, match="is not a submission id"):
        registry.write(Registered(name, 1.0, {}, "/private"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (entry(submission_id="grpo-2"), "belongs to another job"),
        (entry(submission_id="-"), "belongs to another job"),
        (entry(submitted_at="-"), "has no submitted_at"),
        (entry(submitted_at=True), "has no submitted_at"),
        (entry(submitted_at="now"), "has no submitted_at"),
        (entry(jobspec=["a"]), "has no jobspec"),
        (entry(jobspec="-"), "has no jobspec"),
        (entry(shared_root=1), "has no shared_root"),
        ("[]", "is not a mapping"),
        ("", "is not JSON (Expecting value: line 1 column 1 (char 0))"),
        ("[" * 100_000, "is nested too deeply"),
    ],
)
def test_a_malformed_entry(registry: Registry, text: str, why: str) -> None:
    registry.path.mkdir(parents=True)
    (registry.path / "grpo-1.json").write_text(text)
    with pytest.raises(UnreadableError) as raised:
        registry.read("grpo-1")
    assert str(raised.value) == f"{registry.path}/grpo-1.json {why}"


def test_an_entry_that_is_no_file(registry: Registry) -> None:
    registry.path.mkdir(parents=True)
    secret = registry.path.parent / "secret"
    secret.write_text(entry())
    (registry.path / "grpo-1.json").symlink_to(secret)
    os.mkfifo(registry.path / "grpo-2.json")
    (registry.path / "grpo-3.json").mkdir()
    started = time.monotonic()
    for submission_id in ("grpo-1", "grpo-2", "grpo-3"):
        with pytest.raises(UnreadableError):
            registry.read(submission_id)
    assert time.monotonic() - started < 1


def test_an_entry_over_the_limit(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ENTRY_BYTES", 64)
    registry.path.mkdir(parents=True)
    (registry.path / "grpo-1.json").write_text(entry())
    with pytest.raises(UnreadableError, match="has more than"):
        registry.read("grpo-1")


def test_other_files_are_not_jobs(registry: Registry) -> None:
    registry.write(JOB)
    for name in (".grpo-2.0a1b2c3d", "README", "..json", "UPPER.json", ".json"):
        (registry.path / name).write_text("")
    assert registry.ids() == ["grpo-1"]


def test_a_failed_write_leaves_nothing(registry: Registry) -> None:
    registry.path.mkdir(parents=True)
    with pytest.raises(TypeError, match="not JSON serializable"):
        registry.write(Registered("grpo-1", 1.0, {"tags": object()}, "/private"))
    assert names(registry) == []
