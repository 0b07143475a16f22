"""The watch over a running trainer, with a made-up time and without processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import Archive
from ansible_collections.argus.verl.plugins.module_utils.launcher.plan import Plan
from ansible_collections.argus.verl.plugins.module_utils.launcher.processes import Process
from ansible_collections.argus.verl.plugins.module_utils.launcher.watch import EVIDENCE_SECONDS, Watch


class Runner:
    """Records the verbs that would run."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def start(self, verb: str, *arguments: str) -> Process:
        raise AssertionError("the watch waits for evidence before it ends a trainer")

    def run(self, verb: str, *arguments: str, seconds: float) -> None:
        self.calls.append((verb, *map(str, arguments), seconds))

    def run_ray_client(self, verb: str, attempt: int) -> None:
        raise AssertionError("a launcher needs no client of Ray")


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    archive = Archive(tmp_path / "sft-1")
    archive.reserve()
    archive.set_status("RUNNING", submitted_at=1000.0)
    return archive


@pytest.fixture
def runner() -> Runner:
    return Runner()


def events(archive: Archive) -> list[str]:
    return [json.loads(line)["event"] for line in (archive.path / "events.jsonl").read_text().splitlines()]


def test_heartbeats(archive: Archive, runner: Runner) -> None:
    watch = watch_of(archive, Plan(), 2, runner)
    assert watch.check(1001.0, lambda: 1000.5) is None
    assert archive.read_json("heartbeat.json") == {
        "time": 1001.0,
        "step": 0,
        "total_steps": None,
        "first_step": None,
        "first_step_at": None,
        "last_output_at": 1000.5,
    }
    archive.driver_log.write_text("Total training steps: 7\n")
    metrics = archive.metrics_file(2)
    metrics.write_text('{"step": 3, "data": {}}\n{"step": 4, "da')
    watch.check(1002.0, lambda: 1001.5)
    metrics.write_text('{"step": 3, "data": {}}\n{"step": 4, "data": {}}\n')
    watch.check(1003.0, lambda: 1001.5)
    assert archive.read_json("heartbeat.json") == {
        "time": 1003.0,
        "step": 4,
        "total_steps": 7,
        "first_step": 3,
        "first_step_at": 1002.0,
        "last_output_at": 1001.5,
    }
    # The total is read once: the log may be large.
    archive.driver_log.unlink()
    watch.check(1004.0, lambda: 1001.5)
    assert archive.read_json("heartbeat.json")["total_steps"] == 7
    assert runner.calls == []


def test_a_stall_is_reported_once_and_so_is_its_end(archive: Archive, runner: Runner) -> None:
    watch = watch_of(archive, Plan(stall_timeout=60.0, on_stall="report"), 1, runner)
    for now in (1050.0, 1060.0, 1100.0):
        assert watch.check(now, lambda: 1000.0) is None
    assert runner.calls == [("evidence", "stall", EVIDENCE_SECONDS)]
    assert watch.check(1101.0, lambda: 1100.5) is None
    assert watch.check(1200.0, lambda: 1100.5) is None
    assert events(archive) == ["RUNNING", "STALLED", "WENT_ON", "STALLED"]
    assert len(runner.calls) == 2


def test_a_trainer_without_a_stall_timeout_never_stalls(archive: Archive, runner: Runner) -> None:
    assert watch_of(archive, Plan(on_stall="stop"), 1, runner).check(99_999.0, lambda: 1000.0) is None
    assert runner.calls == []


@pytest.mark.parametrize(("now", "stalls"), [(1059.9, False), (1060.0, True)])
def test_the_stall_timeout_is_exact(archive: Archive, runner: Runner, now: float, stalls: bool) -> None:
    watch_of(archive, Plan(stall_timeout=60.0), 1, runner).check(now, lambda: 1000.0)
    assert ("STALLED" in events(archive)) is stalls


def test_a_step_is_progress_without_output(archive: Archive, runner: Runner) -> None:
    watch = watch_of(archive, Plan(stall_timeout=60.0), 1, runner)
    archive.metrics_file(1).write_text('{"step": 1, "data": {}}\n')
    watch.check(1050.0, lambda: 1000.0)
    assert watch.check(1100.0, lambda: 1000.0) is None
    assert runner.calls == []
    # The same file again is no progress.
    watch.check(1111.0, lambda: 1000.0)
    assert runner.calls == [("evidence", "stall", EVIDENCE_SECONDS)]


def test_a_stall_ends_the_trainer_on_request(archive: Archive, runner: Runner) -> None:
    verdict = watch_of(archive, Plan(stall_timeout=60.0, on_stall="stop"), 1, runner).check(1061.0, lambda: 1000.0)
    assert verdict
    assert (verdict.kind, verdict.reason) == ("stalled", "no step and no log line for 61 s, at step 0")
    assert runner.calls == [("evidence", "stall", EVIDENCE_SECONDS)]


def test_a_deadline_counts_from_the_submission(archive: Archive, runner: Runner) -> None:
    watch = watch_of(archive, Plan(deadline=100.0), 1, runner)
    assert watch.check(1100.0, lambda: 1099.0) is None
    verdict = watch.check(1101.0, lambda: 1100.0)
    assert verdict
    assert (verdict.kind, verdict.reason) == ("deadline", "the job exceeded its deadline of 100 s")
    assert runner.calls == [("evidence", "deadline", EVIDENCE_SECONDS)]
