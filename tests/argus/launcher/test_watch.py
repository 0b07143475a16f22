"""The watch over a running trainer, with a made-up time and without processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from archive_files import lines_of

from argus.archive.archive import Archive
from argus.archive.plan import Plan
from argus.launcher.health import Health
from argus.launcher.watch import EVIDENCE_TIMEOUT_SECONDS, Watch


class Runner:
    """Records the verbs that would run. `then` is what a trainer does meanwhile."""

    def __init__(self, then: Callable[[], object] = lambda: None) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.then = then

    def run(self, verb: str, *arguments: str, seconds: float) -> None:
        self.calls.append((verb, *map(str, arguments), seconds))
        self.then()


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    archive = Archive(tmp_path / "sft-1")
    archive.reserve()
    archive.set_status("RUNNING", submitted_at=1000.0)
    return archive


@pytest.fixture
def runner() -> Runner:
    return Runner()


def watch_of(archive: Archive, plan: Plan, attempt: int, runner: Runner, steps: int = 0) -> Watch:
    """steps: how many the attempt has done, at the time 1000."""
    watch = Watch(archive, plan, attempt, runner, Health(archive, plan.overrides, attempt))  # type: ignore[arg-type]
    if steps:
        lines = [f'{{"step": {n}, "data": {{}}}}\n' for n in range(1, steps + 1)]
        archive.metrics_file(attempt).write_text("".join(lines))
        watch.check(1000.0, lambda: 1000.0)
    return watch


def events(archive: Archive) -> list[str]:
    return [line["event"] for line in lines_of(archive, "events.jsonl")]


def test_heartbeats(archive: Archive, runner: Runner) -> None:
    watch = watch_of(archive, Plan(), 2, runner)
    assert watch.check(1001.0, lambda: 1000.5) is None
    first = archive.read_mapping("heartbeat.json")
    assert [first[name] for name in ("time", "step", "last_output_at")] == [1001.0, 0, 1000.5]
    archive.driver_log.write_text("Total training steps: 7\n")
    metrics = archive.metrics_file(2)
    metrics.write_text('{"step": 3, "data": {}}\n{"step": 4, "da')
    watch.check(1002.0, lambda: 1001.5)
    metrics.write_text('{"step": 3, "data": {}}\n{"step": 4, "data": {}}\n')
    watch.check(1003.0, lambda: 1001.5)
    beat = archive.read_mapping("heartbeat.json")
    assert [beat[name] for name in ("step", "total_steps", "first_step", "first_step_at")] == [4, 7, 3, 1002.0]


def test_a_stall_is_reported_once_and_so_is_its_end(archive: Archive, runner: Runner) -> None:
    watch = watch_of(archive, Plan(stall_timeout=60.0, on_stall="report"), 1, runner, steps=1)
    for now, calls in ((1059.9, 0), (1060.0, 1), (1100.0, 1)):
        assert watch.check(now, lambda: 1000.0) is None
        assert runner.calls == [("evidence", "stall", EVIDENCE_TIMEOUT_SECONDS)] * calls
    assert watch.check(1101.0, lambda: 1100.5) is watch.check(1200.0, lambda: 1100.5) is None
    assert events(archive) == ["RUNNING", "STALLED", "WENT_ON", "STALLED"]
    assert len(runner.calls) == 2


@pytest.mark.parametrize(("deadline", "stop_at"), [(100.0, ""), (None, "1100")])
def test_a_job_is_ended_at_its_deadline_and_before_its_machines_are_taken_away(
    archive: Archive, runner: Runner, deadline: float | None, stop_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ARGUS_VERL_STOP_AT", stop_at)
    # It counts from the submission.
    watch = watch_of(archive, Plan(deadline=deadline), 1, runner)
    assert watch.check(1099.9, lambda: 1099.0) is None
    verdict = watch.check(1101.0, lambda: 1100.0)
    assert verdict and verdict.kind == "deadline" and ("taken away" in verdict.reason) == bool(stop_at)
    # Its trainer may take a while to end; a second collection would outlive the job.
    assert watch.check(1104.0, lambda: 1100.0) == verdict
    assert runner.calls == [("evidence", "deadline", EVIDENCE_TIMEOUT_SECONDS)]


def test_a_trainer_that_writes_meanwhile_is_not_ended(archive: Archive) -> None:
    output = [1000.0]
    runner = Runner(lambda: output.append(1062.0))
    watch = watch_of(archive, Plan(stall_timeout=60.0, on_stall="stop"), 1, runner, steps=2)
    assert watch.check(1061.0, lambda: output[-1]) is None
    # Later, it stalls again, and does not go on.
    runner.then = lambda: None
    assert watch.check(1122.0, lambda: output[-1])


@pytest.mark.parametrize("steps", [0, 2])
def test_a_trainer_that_does_a_step_meanwhile_is_not_ended(archive: Archive, steps: int) -> None:
    runner = Runner(lambda: archive.metrics_file(1).write_text('{"step": 3, "data": {"x": 1}}\n' * 3))
    watch = watch_of(archive, Plan(start_timeout=60.0, stall_timeout=60.0, on_stall="stop"), 1, runner, steps)
    watch.check(1000.0, lambda: 1000.0)
    assert watch.check(1061.0, lambda: 1000.0) is None
    assert events(archive) == ["RUNNING", "STALLED", "WENT_ON"]


@pytest.mark.parametrize(("now", "stalls"), [(1599.9, False), (1600.0, True)])
def test_a_start_has_a_limit_of_its_own(archive: Archive, runner: Runner, now: float, stalls: bool) -> None:
    plan = Plan(start_timeout=600.0, stall_timeout=60.0, on_stall="stop")
    watch = watch_of(archive, plan, 1, runner)
    archive.driver_log.write_text("INFO:2026:reward loop manager initialized\n")
    archive.write_json("steward.json", {"notice": "waits for its actors to start: 1 x A (1 GPU)"})
    assert watch.check(1000.0, lambda: 1000.0) is None
    # Silent or not: what counts is the first step.
    verdict = watch.check(now, lambda: 1000.0 if stalls else now)
    assert (verdict.kind if verdict else "") == ("stalled" if stalls else "")
    assert not verdict or ("rollout engine" in verdict.reason and "waits for its actors to start" in verdict.reason)


def test_a_validation_alone_may_take_long_but_is_not_silent(archive: Archive, runner: Runner) -> None:
    plan = Plan(start_timeout=600.0, stall_timeout=60.0, on_stall="stop", overrides=("trainer.val_only=True",))
    watch = watch_of(archive, plan, 1, runner)
    assert [bool(watch.check(now, lambda: 2000.0)) for now in (1000.0, 2599.9, 2600.0)] == [False, False, True]


DIED = (
    "(vLLMHttpServer pid=5) ERROR 12-01 23:08:02 [a.py:5] Engine core proc E died unexpectedly, shutting down client.\n"
)


def watch_with_a_lost_engine(archive: Archive, runner: Runner, told_by: str) -> Watch:
    """An attempt that has done two of three steps, and whose engine ends at the time 1001."""
    archive.driver_log.write_text("Total training steps: 3\n")
    watch = watch_of(archive, Plan(), 1, runner, steps=2)
    if told_by == "steward":
        archive.write_json("steward.json", {"engine": "vllm_server_0_0 (vLLMHttpServer, pid=5) died: killed"})
    else:
        archive.driver_log.write_text(f"Total training steps: 3\n{DIED}")
    assert watch.check(1001.0, lambda: 1001.0) is None
    return watch


@pytest.mark.parametrize("told_by", ["log", "steward"])
def test_a_trainer_that_waits_for_a_lost_engine_is_ended(archive: Archive, runner: Runner, told_by: str) -> None:
    watch = watch_with_a_lost_engine(archive, runner, told_by)
    assert events(archive) == ["RUNNING", "ENGINE_LOST"]
    assert watch.check(1030.0, lambda: 1030.0) is None
    verdict = watch.check(1031.0, lambda: 1031.0)
    assert verdict and verdict.kind == "engine_lost" and " died" in verdict.reason
    watch.check(1033.0, lambda: 1033.0)
    assert runner.calls == [("evidence", "stall", EVIDENCE_TIMEOUT_SECONDS)]


@pytest.mark.parametrize("told_by", ["log", "steward"])
@pytest.mark.parametrize("collects", [False, True])
def test_a_trainer_that_goes_on_without_an_engine_is_not_ended(archive: Archive, told_by: str, collects: bool) -> None:
    def step() -> None:
        archive.metrics_file(1).write_text('{"step": 2, "data": {}}\n' * 3)

    watch = watch_with_a_lost_engine(archive, Runner(step) if collects else Runner(), told_by)
    if not collects:
        step()
    checks = [watch.check(now, lambda: 1.0) for now in (1031.0, 1033.0, 1100.0)]
    assert (checks, events(archive)) == ([None] * 3, ["RUNNING", "ENGINE_LOST", "WENT_ON"])


def test_an_engine_that_ends_after_the_last_step_is_not_lost(archive: Archive, runner: Runner) -> None:
    archive.driver_log.write_text(f"Total training steps: 2\n{DIED}")
    watch = watch_of(archive, Plan(), 1, runner, steps=2)
    assert watch.check(1100.0, lambda: 1000.0) is None
    assert events(archive) == ["RUNNING"]
