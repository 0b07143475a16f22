"""The health of a running attempt: what it reads, and what it writes into the status."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from archive_files import lines_of

from argus.archive.archive import Archive
from argus.archive.job_warnings import JobWarning
from argus.launcher.log import Phase
from argus.launcher.watch import WRITE_SECONDS, Health

CUT = "Prompt of 70 tokens exceeds rollout.prompt_length=64; left-truncating.\n"


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    archive = Archive(tmp_path / "grpo-1")
    archive.reserve()
    archive.set_status("RUNNING", workload="grpo")
    archive.driver_log.touch()
    return archive


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def step(archive: Archive, number: int, attempt: int = 1, **data: Any) -> None:
    append(archive.metrics_file(attempt), json.dumps({"step": number, "data": {"train/lr": 1.0, **data}}) + "\n")


def told(archive: Archive) -> list[str]:
    return [warning.kind for warning in archive.read_status().warnings]


def events(archive: Archive) -> list[str]:
    return [event["about"] for event in lines_of(archive, "events.jsonl") if event["event"] == "WARNING"]


def test_a_new_warning_is_written_at_once_and_new_numbers_later(archive: Archive) -> None:
    health = Health(archive, (), 1)
    health.look(1000.0)
    assert "warnings" not in archive.status_json()
    append(archive.driver_log, CUT)
    health.look(1001.0)
    (warning,) = archive.read_status().warnings
    assert (warning.kind, warning.count) == ("prompts_cut", 1)
    append(archive.driver_log, CUT)
    health.look(1001.0 + WRITE_SECONDS - 0.1)
    assert archive.read_status().warnings[0].count == 1
    health.look(1001.0 + WRITE_SECONDS)
    assert archive.read_status().warnings[0].count == 2
    append(archive.driver_log, CUT)
    health.finish(over=True)
    assert archive.read_status().warnings[0].count == 3
    assert (archive.read_status().state, archive.read_status().workload) == ("RUNNING", "grpo")
    assert events(archive) == ["prompts_cut"]


def test_metrics_are_read_by_whole_lines(archive: Archive) -> None:
    health = Health(archive, (), 1)
    append(archive.metrics_file(1), '{"step": 1, "data": {"train/lo')
    health.look(1000.0)
    append(archive.metrics_file(1), 'ss": NaN}}\nno step\n')
    health.look(1001.0)
    assert told(archive) == ["loss_nan"]
    assert health.metrics.steps == 1


def test_the_end_decides_what_only_the_end_can_tell(archive: Archive) -> None:
    for over, expected in ((False, []), (True, ["no_checkpoint"])):
        health = Health(archive, ("trainer.save_freq=2",), 1)
        archive.metrics_file(1).unlink(missing_ok=True)
        for number in (1, 2):
            step(archive, number)
        health.finish(over)
        assert told(archive) == expected
    (archive.path / "checkpoints" / "global_step_2").mkdir()
    health = Health(archive, ("trainer.save_freq=2",), 1)
    health.finish(over=True)
    assert told(archive) == []


def test_a_full_disk_is_told_before_the_next_save(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = archive.path / "checkpoints"
    (directory / "global_step_2" / "actor").mkdir(parents=True)
    (directory / "global_step_2" / "actor" / "model.pt").write_bytes(bytes(1000))
    (directory / "latest_checkpointed_iteration.txt").write_text("2")
    health = Health(archive, ("trainer.save_freq=2",), 1)
    step(archive, 2)
    monkeypatch.setattr(Health, "free_bytes", lambda _self: 999)
    health.look(1000.0)
    assert told(archive) == ["no_space"]
    assert not health.has_space()
    monkeypatch.setattr(Health, "free_bytes", lambda _self: 1000)
    health.look(1001.0)
    assert told(archive) == []
    assert health.has_space()
    # Before the first one, it is not known how much it needs.
    assert not Health(archive, (), 1).has_space()


def test_what_happened_in_an_earlier_attempt_stays(archive: Archive) -> None:
    earlier = [JobWarning("prompts_cut", "7 prompts", 7), JobWarning("gradient_zero", "always")]
    archive.set_status("RUNNING", warnings=[asdict(warning) for warning in earlier])
    append(archive.driver_log, CUT)
    health = Health(archive, (), 2)
    health.look(1000.0)
    assert archive.read_status().warnings == (earlier[0],)
    step(archive, 1, attempt=2, **{"train/loss": float("inf")})
    health.look(1001.0)
    assert told(archive) == ["loss_nan", "prompts_cut"]
    assert events(archive) == ["loss_nan"]


def test_the_phases_are_timed(archive: Archive) -> None:
    archive.set_status("RUNNING", phases={"queue": 2.0})
    health = Health(archive, (), 1)
    health.look(1000.0)
    append(archive.driver_log, "INFO:2026:create worker group dict_keys(['actor'])\n")
    health.look(1003.0)
    health.look(1005.0)
    append(archive.driver_log, "all initialize finished, ready to fit\n")
    health.look(1010.5)
    assert archive.read_status().phases == {"queue": 2.0, str(Phase.WEIGHTS): 7.5}
    step(archive, 1)
    health.look(1020.0)
    health.look(1030.0)
    assert archive.read_status().phases == {"queue": 2.0, str(Phase.WEIGHTS): 7.5, str(Phase.ROLLOUT): 9.5}


def test_nothing_that_a_job_puts_there_raises(archive: Archive) -> None:
    archive.driver_log.unlink()
    archive.driver_log.mkdir()
    archive.metrics_file(1).symlink_to("/etc/passwd")
    (archive.path / "status.json").write_text("[]")
    health = Health(archive, ("trainer.save_freq=1",), 1)
    health.look(1000.0)
    health.finish(over=True)
    assert (archive.path / "status.json").read_text() == "[]"
