from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.action import ray_job, ray_job_info
from ansible_collections.argus.verl.plugins.module_utils.argus.archive.failures import WHAT_TO_DO
from ansible_collections.argus.verl.plugins.plugin_utils import action as actions
from ansible_collections.argus.verl.plugins.plugin_utils import job_report

CLOCK = 1000.0


def job(state: str = "RUNNING", *log: str, **changes: Any) -> dict[str, Any]:
    progress = {"step": 4, "total_steps": 12, "metric": "train/loss", "first": 6.0, "last": 4.25}
    return {
        "submission_id": "sft-1",
        "state": state,
        "ended": state in ("SUCCEEDED", "FAILED"),
        "reason": "",
        "failure": None,
        "attempt": 1,
        "started_at": CLOCK - 65,
        "ended_at": None,
        "silent_for": 4.0,
        "time_left": None,
        "progress": progress,
        "archive": "/private/jobs/sft-1",
        "log": list(log),
        "log_position": f"1:{len(log)}",
        "problem": "",
    } | changes


def answer(one: dict[str, Any]) -> dict[str, Any]:
    return {"job": one, "time": CLOCK, "changed": False}


class Task:
    check_mode = False
    async_val = 0

    def __init__(self, **arguments: Any) -> None:
        self.args = arguments


class Clock:
    """Time passes only while something sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def time(self) -> float:
        return self.now


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that are printed, on a controller with a fake clock."""
    lines: list[str] = []
    clock = Clock()
    monkeypatch.setattr(job_report.display, "display", lambda text: lines.extend(text.split("\n")))
    monkeypatch.setattr(job_report, "time", clock)
    monkeypatch.setattr(job_report, "playbook_command", lambda name, variables: f"run {name}")
    monkeypatch.setattr(ray_job, "playbook_command", lambda name, variables: f"run {name}")
    return lines


def log_action(*answers: dict[str, Any], **arguments: Any) -> tuple[Any, list[dict[str, Any]]]:
    """The action plugin with a machine that gives these answers, and the list of its questions."""
    action = ray_job_info.ActionModule.__new__(ray_job_info.ActionModule)
    action._task = Task(**{"submission_id": "sft-1", "show": "log", **arguments})
    asked: list[dict[str, Any]] = []
    remaining = list(answers)

    def execute(given: dict[str, Any]) -> dict[str, Any]:
        asked.append(given)
        return remaining.pop(0) if len(remaining) > 1 else remaining[0]

    action.job_info = execute
    return action, asked


def run(action: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setattr(actions.ActionBase, "run", lambda *_arguments: {})
    answered = action.run(None, {})
    assert isinstance(answered, dict)
    return answered


def test_the_end_of_a_log(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    action, asked = log_action(answer(job("RUNNING", "a", "\x1b[A\x1b[36mb\x1b[0m")), tail=2)
    assert run(action, monkeypatch)["changed"] is False
    assert asked[0]["tail"] == 2
    assert shown == ["", "Job sft-1: RUNNING; last 2 lines of /private/jobs/sft-1/logs/driver.log", "a", "b"]


def test_lines_of_a_rank_and_first_errors(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    log = "/private/jobs/sft-1/logs/driver.log"
    for arguments, lines, title in (
        ({"rank": "3"}, [], f"last 0 lines with rank 3 of {log}"),
        ({"rank": "3", "attempt": 2}, ["a"], f"last line with rank 3, attempt 2 of {log}"),
        ({"first_errors": True}, ["the driver:", "  KeyError"], f"first error of each process of {log}"),
        ({"first_errors": True}, [], f"no error at the end of {log}"),
        ({"first_errors": True, "rank": "3"}, [], f"no error at the end with rank 3 of {log}"),
    ):
        shown.clear()
        action, asked = log_action(answer(job("FAILED", *lines)), **arguments)
        run(action, monkeypatch)
        assert shown == ["", f"Job sft-1: FAILED; {title}", *lines]
        assert asked[0].items() >= arguments.items()


def test_only_lines_that_are_meant_are_followed(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    end = [answer(job("SUCCEEDED", log_position=position)) for position in ("1:99", "1:99")]
    more = answer(job("RUNNING", "a 2", log_position="1:9"))
    action, asked = log_action(answer(job("RUNNING", "a 1")), more, *end, show="follow", rank="3", first_errors=True)
    run(action, monkeypatch)
    assert "a 2" in shown
    # The end of the log has no lines of that rank, and is read all the same.
    assert [given["log_position"] for given in asked] == [None, "1:1", "1:9", "1:99"]
    assert [(given["rank"], given["first_errors"]) for given in asked] == [("3", True), *[("3", False)] * 3]


def test_a_job_without_a_log(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    action, _asked = log_action(answer(job("QUEUED", reason="1 worker is free")))
    run(action, monkeypatch)
    assert shown == ["", "Job sft-1: QUEUED, no log yet: 1 worker is free"]


def test_a_log_is_followed_to_its_end(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    action, asked = log_action(
        answer(job("RUNNING", "a")),
        answer(job("RUNNING", "b", log_position="1:9")),
        answer(job("RETRYING", log_position="1:9", reason="a node was lost")),
        answer(job("SUCCEEDED", "c", log_position="2:5", ended=False)),
        answer(job("SUCCEEDED", log_position="2:5", ended=False)),
        show="follow",
    )
    run(action, monkeypatch)
    assert [given.get("log_position") for given in asked] == [None, "1:1", "1:9", "1:9", "2:5"]
    begin = shown.index("Following sft-1. Ctrl-C stops following, the job continues. To follow it again:")
    assert shown[begin + 1 :] == [
        "  run logs",
        "",
        "b",
        "sft-1  RETRYING  step 4/12  train/loss 4.250  1:05  a node was lost",
        "c",
        "",
        "sft-1  SUCCEEDED  step 4/12  train/loss 4.250  1:05",
    ]


def test_what_a_followed_job_waits_for_is_shown_once(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    notice = "waits for its placement: 1 x 8 GPU and 80 CPU are not free together"
    waits = answer(job(log_position="1:1", notice=notice))
    going_on, done = answer(job(log_position="1:1")), answer(job("SUCCEEDED", log_position="1:1", ended=False))
    action, _asked = log_action(answer(job("RUNNING", "a")), waits, waits, going_on, done, show="follow")
    run(action, monkeypatch)
    lines = [line for line in shown if line.startswith("sft-1  ")]
    running = "sft-1  RUNNING  step 4/12  train/loss 4.250  1:05"
    assert lines == [f"{running}  {notice}", running, "sft-1  SUCCEEDED  step 4/12  train/loss 4.250  1:05"]


def test_a_job_that_has_ended_is_not_followed(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    action, asked = log_action(answer(job("FAILED", "a")), show="follow")
    assert "failed" not in run(action, monkeypatch)
    assert len(asked) == 1


FAILURE = {"kind": "reward", "reason": "it raised", "lines": [], "todo": "Run curl evil"}


@pytest.mark.parametrize("before", [[], [job("RUNNING", "a")]])
def test_a_job_that_failed_has_its_cause_below_the_log(
    shown: list[str], monkeypatch: pytest.MonkeyPatch, before: list[dict[str, Any]]
) -> None:
    end = job("FAILED", *([] if before else ["a"]), reason="it raised", failure=FAILURE)
    action, _asked = log_action(*map(answer, [*before, end]), show="follow")
    run(action, monkeypatch)
    line = ["", "sft-1  FAILED  step 4/12  train/loss 4.250  1:05"] if before else ["a"]
    assert shown[-len(line) - 3 :] == [*line, "", "Failed: reward: it raised", f"To do:  {WHAT_TO_DO['reward']}"]


def test_following_tells_that_the_head_is_away(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    away = [answer(job("RUNNING", problem="refused", head_away_for=seconds)) for seconds in (20.0, 30.0)]
    back = map(answer, [job("RUNNING"), job("SUCCEEDED")])
    action, _asked = log_action(answer(job("RUNNING")), *away, *back, show="follow")
    run(action, monkeypatch)
    assert [line.endswith("the head has been away for 0:20; the job goes on") for line in shown].count(True) == 1


# --- Following a job --------------------------------------------------------------------------------------------------


def test_new_warnings_stand_in_the_followed_log(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    warned = {"warnings": [{"kind": "loss_nan", "text": "the loss was not a number"}]}
    ended = job("SUCCEEDED", **warned)
    action, _asked = log_action(answer(job()), answer(job("RUNNING", "a", **warned)), answer(ended), show="follow")
    assert run(action, monkeypatch)["changed"] is False
    assert shown.count("WARNING  the loss was not a number") == 1
    assert shown.index("a") < shown.index("WARNING  the loss was not a number")
    assert shown[-2:] == ["SUCCEEDED with 1 warning:", "  the loss was not a number"]
