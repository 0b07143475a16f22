"""The health of a running attempt: what it reads, and what it writes into the status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from archive_files import lines_of

from argus.archive.archive import Archive
from argus.archive.status import Phase
from argus.launcher.health import WRITE_INTERVAL_SECONDS, Health

CUT = "Prompt of 70 tokens exceeds rollout.prompt_length=64; left-truncating.\n"


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    archive = Archive(tmp_path / "grpo-1")
    archive.reserve()
    archive.set_status("RUNNING", workload="grpo")
    archive.driver_log.touch()
    return archive


def log(archive: Archive, text: str) -> None:
    archive.append("logs/driver.log", text)


def step(archive: Archive, number: int) -> None:
    archive.append("logs/metrics-1.jsonl", json.dumps({"step": number, "data": {"train/lr": 1.0}}) + "\n")


def warning_kinds(archive: Archive) -> list[str]:
    return [warning.kind for warning in archive.read_status().warnings]


def test_a_new_warning_is_written_at_once_and_new_numbers_later(archive: Archive) -> None:
    health = Health(archive, (), 1)
    health.look(1000.0)
    assert "warnings" not in archive.status_json()
    log(archive, CUT)
    health.look(1001.0)
    (warning,) = archive.read_status().warnings
    assert (warning.kind, warning.count) == ("prompts_cut", 1)
    log(archive, CUT)
    health.look(1001.0 + WRITE_INTERVAL_SECONDS - 0.1)
    assert archive.read_status().warnings[0].count == 1
    health.look(1001.0 + WRITE_INTERVAL_SECONDS)
    assert archive.read_status().warnings[0].count == 2
    log(archive, CUT)
    health.finish(has_succeeded=True)
    assert archive.read_status().warnings[0].count == 3
    assert (archive.read_status().state, archive.read_status().workload) == ("RUNNING", "grpo")
    kinds = [event["about"] for event in lines_of(archive, "events.jsonl") if event["event"] == "WARNING"]
    assert kinds == ["prompts_cut"]


def test_a_full_disk_is_told_before_the_next_save(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = archive.path / "checkpoints"
    archive.write_text("checkpoints/global_step_2/actor/model.pt", "\0" * 1000)
    (directory / "latest_checkpointed_iteration.txt").write_text("2")
    health = Health(archive, ("trainer.save_freq=2",), 1)
    step(archive, 2)
    monkeypatch.setattr(Health, "free_bytes", lambda _self: 999)
    health.look(1000.0)
    assert warning_kinds(archive) == ["no_space"]
    assert not health.has_space_for_checkpoint()
    monkeypatch.setattr(Health, "free_bytes", lambda _self: 1000)
    health.look(1001.0)
    assert warning_kinds(archive) == [] and health.has_space_for_checkpoint()


def test_the_phases_are_timed(archive: Archive) -> None:
    archive.set_status("RUNNING", phases={"queue": 2.0})
    health = Health(archive, (), 1)
    health.look(1000.0)
    log(archive, "INFO:2026:create worker group dict_keys(['actor'])\n")
    health.look(1003.0)
    health.look(1005.0)
    log(archive, "all initialize finished, ready to fit\n")
    health.look(1010.5)
    assert archive.read_status().phases == {"queue": 2.0, str(Phase.WEIGHTS): 7.5}
    step(archive, 1)
    health.look(1020.0)
    health.look(1030.0)
    assert archive.read_status().phases == {"queue": 2.0, str(Phase.WEIGHTS): 7.5, str(Phase.ROLLOUT): 9.5}
