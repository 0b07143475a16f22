from __future__ import annotations

import copy
import getpass
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.argus.verl.plugins.action import ray_job
from ansible_collections.argus.verl.plugins.action.ray_job import ActionModule
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.plugin_utils import action as actions
from ansible_collections.argus.verl.plugins.plugin_utils import job_report
from ansible_collections.argus.verl.plugins.plugin_utils.job_report import job_commands
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import Answer, ProgramError
from jobs import MINIMAL

# --- The request ------------------------------------------------------------------------------------------------------


def test_the_request_of_a_submission(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "of the environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of the operator")
    monkeypatch.delenv("ABSENT", raising=False)
    head = Head(SUBMITTED)
    head.run(
        jobspec={**MINIMAL, "secrets": ["AWS_SECRET_ACCESS_KEY"]},
        defaults={"retries": 2},
        resume_from="old",
        secret_values={"HF_TOKEN": "given"},
        secrets_from_environment=["WANDB_API_KEY", "HF_TOKEN", "ABSENT"],
    )
    assert head.calls == [
        (
            "submit",
            {
                "jobspec": {**MINIMAL, "secrets": ["AWS_SECRET_ACCESS_KEY"]},
                "command_line": [],
                "defaults": {"retries": 2},
                "resume_from": "old",
                # Of the environment, only what the inventory allows.
                "secrets": {"HF_TOKEN": "given", "WANDB_API_KEY": "of the environment", "ABSENT": None},
                "notify": "",
                "limits": {},
                "submitted_by": f"{getpass.getuser()}@{platform.node()}",
                "check": False,
            },
        )
    ]


def test_nothing_is_submitted_in_check_mode(shown: list[str]) -> None:
    head = Head(SUBMITTED, check_mode=True)
    head.run(jobspec=MINIMAL)
    head.run(resubmitted_from="grpo-1")
    assert [(verb, request["check"]) for verb, request in head.calls] == [("submit", True), ("resubmit", True)]


# --- The command line -------------------------------------------------------------------------------------------------


@pytest.fixture
def command_line(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the extra variables of this run."""

    def given(*variables: dict[str, Any]) -> None:
        monkeypatch.setattr(ray_job, "extra_variables", lambda _loader, _of_new_job: list(variables))

    return given


def test_the_command_line_is_sent_with_the_jobspec(
    shown: list[str], tmp_path: Path, command_line: Callable[..., None]
) -> None:
    file = tmp_path / "grpo.yaml"
    file.write_text("workload: grpo\ntrainer_overrides: {a.b: 1, c: 2}\n")
    variables = [{"jobspec": None}, {"set": ["a.b=3"]}]
    command_line(*variables)
    head = Head(SUBMITTED)
    head.run(file=str(file), command_line=True)
    ((_verb, request),) = head.calls
    assert request["jobspec"] == {"workload": "grpo", "trainer_overrides": {"a.b": 1, "c": 2}}
    assert request["command_line"] == variables


def test_only_the_roles_take_keys_from_the_command_line(shown: list[str], command_line: Callable[..., None]) -> None:
    command_line({"retries": None}, {"set": "retries=2"})
    head = Head(SUBMITTED)
    head.run(jobspec=MINIMAL)
    assert head.calls[0][1]["command_line"] == []


def test_a_jobspec_on_the_command_line_alone(shown: list[str], command_line: Callable[..., None]) -> None:
    command_line({}, {"set": [f"{key}={value}" for key, value in MINIMAL.items()]})
    head = Head(SUBMITTED)
    assert head.run(file="", command_line=True) == DONE
    assert head.calls[0][1]["jobspec"] == {}


def test_neither_a_file_nor_a_key(shown: list[str], command_line: Callable[..., None]) -> None:
    command_line({"job_wait": None})
    assert Head(SUBMITTED).run(file="", command_line=True)["failed"]
    assert "no file was named" in "".join(shown)


def test_a_sweep_ends_with_the_first_job_that_is_refused(shown: list[str], command_line: Callable[..., None]) -> None:
    command_line({"set": "retries=2"})
    jobs = [{"submission_id": f"lr-{number}", "set": [f"lr={number}"]} for number in range(3)]
    head = Head({**SUBMITTED, "submission_id": "lr-0"}, {"failed": True, "findings": [FINDING]})
    sweep = {"name": "lr", "at_once": 1, "jobs": jobs}
    result = head.run(jobspec=MINIMAL, command_line=True, sweep=sweep, limits={"user": {"jobs": 4}})
    assert result["failed"] and result["changed"] and [job["submission_id"] for job in result["jobs"]] == ["lr-0"]
    requests = [request for _verb, request in head.calls]
    assert [request["command_line"][1] for request in requests] == [
        {"set": ["submission_id=lr-0", "lr=0"]},
        {"set": ["submission_id=lr-1", "lr=1"]},
    ]
    assert requests[0]["limits"] == {"user": {"jobs": 4}, "sweep": {"jobs": 1}}


# --- The task ---------------------------------------------------------------------------------------------------------

SUBMITTED = {
    "changed": True,
    "submission_id": "grpo-1",
    "archive": "/private/jobs/grpo-1",
    "state": "SUBMITTED",
    "overrides": ["a=1"],
}
DONE = SUBMITTED
GONE = ProgramError("there is no container mvp-ray-head on box. cluster_up.yml starts it", node_is_gone=True)
NO_ANSWER = ProgramError("argus status on mvp-ray-head gave no answer", node_is_gone=True)
FINDING = {"where": "model", "what": "is missing", "todo": "stage it", "severity": "error", "key": "model"}


def job(state: str = "RUNNING", **changes: Any) -> dict[str, Any]:
    return {
        "submission_id": "grpo-1",
        "state": state,
        "ended": state in ("SUCCEEDED", "FAILED", "STOPPED"),
        "reason": "",
        "failure": None,
        "started_at": None,
        "ended_at": None,
        "silent_for": 4.0,
        "progress": {"step": 0, "total_steps": None, "metric": "", "first": None, "last": None},
        "archive": "/private/jobs/grpo-1",
        "log": [],
        "problem": "",
        "jobspec": {**MINIMAL, "submission_id": "grpo-1"},
    } | changes


def info(*arguments: Any, **changes: Any) -> dict[str, Any]:
    return {"job": job(*arguments, **changes), "time": 1000.0}


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """So wide that no table is wrapped."""
    monkeypatch.setenv("COLUMNS", "300")


class Clock:
    """Time that passes only during sleeps."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Task:
    check_mode = False
    async_val = 0

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.args = arguments


class Head:
    """The action plugin with a head that gives these answers in turn, the last one forever."""

    def __init__(self, *answers: Any, check_mode: bool = False) -> None:
        self.answers = list(answers)
        self.check_mode = check_mode
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def execute(self, verb: str, request: dict[str, Any]) -> dict[str, Any]:
        self.calls.append((verb, copy.deepcopy(request)))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return copy.deepcopy(answer)  # type: ignore[no-any-return]

    def call(self, verb: str, request: dict[str, Any], _seconds: float, needs_node: bool) -> Answer:
        assert needs_node
        answer = self.execute(verb, request)
        findings = [Finding(**finding) for finding in answer.pop("findings", [])]
        return Answer(not answer.pop("failed", False), answer.pop("changed", False), findings, answer)

    def run(self, **arguments: Any) -> dict[str, Any]:
        action = ActionModule.__new__(ActionModule)
        action._task = Task(arguments)
        action._loader = None
        action._task.check_mode = self.check_mode
        variables = {"inventory_hostname": "mvp-ray-head", "ansible_inventory_sources": None}
        with (
            patch.object(ActionModule, "call", lambda _action, *given, **options: self.call(*given, **options)),
            patch.object(ActionModule, "job_info", lambda _action, request: self.execute("status", request)),
        ):
            return action.run(None, variables)  # type: ignore[no-any-return]


def slow_answers(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer takes six seconds, as with a wait_timeout."""
    clock = Clock()
    monkeypatch.setattr(job_report, "time", clock)
    execute = head.execute

    def slow(verb: str, request: dict[str, Any]) -> dict[str, Any]:
        clock.now += 6
        return execute(verb, request)

    monkeypatch.setattr(head, "execute", slow)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that the plugin displays, with a clock of its own."""
    lines: list[str] = []
    monkeypatch.setattr(actions.ActionBase, "run", lambda *_arguments: {})
    monkeypatch.setattr(ray_job.display, "display", lambda text: lines.extend(text.split("\n")))
    monkeypatch.setattr(job_report, "time", Clock())
    monkeypatch.setattr(ray_job, "show_report", lambda *_arguments, **_named: None)
    for module in (ray_job, job_report):
        monkeypatch.setattr(module, "playbook_command", lambda name, _variables: f"run {name}")
    return lines


@pytest.mark.parametrize(
    ("arguments", "check", "changes", "lines"),
    [
        ({"jobspec": MINIMAL}, False, {}, ["Job grpo-1: SUBMITTED", "8 steps", "Archive:  /private/jobs/grpo-1"]),
        ({"jobspec": MINIMAL}, False, {"changed": False}, ["Job grpo-1: SUBMITTED, submitted before", "8 steps"]),
        ({"jobspec": MINIMAL}, True, {}, ["", "8 steps", "The job would be SUBMITTED: no errors were found."]),
        ({"state": "stopped", "submission_id": "grpo-1"}, False, {"state": "STOPPED"}, ["Job grpo-1: STOPPED"]),
    ],
)
def test_what_became_of_a_job_is_shown(
    shown: list[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: dict[str, Any],
    check: bool,
    changes: dict[str, Any],
    lines: list[str],
) -> None:
    reports: list[str] = []
    monkeypatch.setattr(ray_job, "show_report", lambda title="", text=(): reports.extend([title, *text]))
    answer = {**SUBMITTED, "facts": {"notes": ["8 steps"]}, **changes}
    Head(answer, check_mode=check).run(**arguments)
    assert reports[: len(lines)] == lines
    assert check or reports[-len(job_commands("grpo-1", answer["state"])) :] == job_commands("grpo-1", answer["state"])


def test_a_file_that_does_not_exist(shown: list[str]) -> None:
    head = Head(SUBMITTED)
    result = head.run(file="none.yaml")
    assert result["msg"] == "The JobSpec was refused; nothing was changed: 1 error, see the table above"
    assert head.calls == []
    assert "there is no file 'none.yaml'" in "".join(shown)


def test_warnings_are_shown(shown: list[str]) -> None:
    result = Head({**SUBMITTED, "findings": [{**FINDING, "severity": "warning"}]}).run(jobspec=MINIMAL)
    assert result == DONE
    assert shown[2].split() == ["warning", "model", "is", "missing", "stage", "it"]


def test_a_reward_that_was_edited_and_not_staged(shown: list[str], tmp_path: Path) -> None:
    (tmp_path / "score.py").write_text("edited")
    head = Head({**SUBMITTED, "files": {"user/code/score.py": "before"}})
    result = head.run(jobspec=MINIMAL, user_code=[str(tmp_path / "score.py")])
    assert result["state"] == "SUBMITTED"
    assert "score.py changed after stage.yml copied it" in " ".join(" ".join(shown).split())


def test_the_findings_of_the_head_are_shown(shown: list[str]) -> None:
    findings = [FINDING, {**FINDING, "where": "dataset"}, {**FINDING, "severity": "warning"}]
    result = Head({"failed": True, "msg": "long", "findings": findings}).run(jobspec=MINIMAL)
    message = "The JobSpec was refused; nothing was changed: 2 errors, see the table above"
    assert result == {"failed": True, "changed": False, "msg": message}
    assert [line.split()[0] for line in shown[1:]] == ["SEVERITY", "error", "error", "warning"]


def test_a_head_that_is_gone(shown: list[str]) -> None:
    for arguments in ({"jobspec": MINIMAL}, {"resubmitted_from": "grpo-1"}, {"state": "stopped", "submission_id": "a"}):
        assert Head(GONE).run(**arguments) == {"failed": True, "changed": False, "msg": str(GONE)}


def test_a_failure_that_is_no_refusal(shown: list[str]) -> None:
    finding = {**FINDING, "where": "argus", "what": "could not be submitted", "key": "operation"}
    result = Head({"failed": True, "findings": [finding]}).run(jobspec=MINIMAL, wait=True)
    assert result == {"failed": True, "changed": False, "msg": "could not be submitted"}
    assert shown == []


EVIL = "a\x1b]0;title\x07\x9b2J\u202eb"


def test_text_from_the_head_reaches_the_terminal_as_data(shown: list[str]) -> None:
    """Findings, progress, lines of a log, causes, tags and messages are written by jobs."""
    failure = {"kind": "data", "reason": EVIL, "lines": [EVIL], "todo": EVIL}
    finding = {**FINDING, "what": EVIL, "where": EVIL, "todo": EVIL, "severity": "warning"}
    head = Head(
        {**SUBMITTED, "findings": [finding]},
        info("QUEUED", reason=EVIL),
        info("FAILED", reason=EVIL, failure=failure, log=[EVIL], archive=f"/private/{EVIL}"),
    )
    result = head.run(jobspec=MINIMAL, wait=True)
    for text in (*shown, result["msg"]):
        assert not set(text) & {"\x1b", "\x07", "\x9b", "\u202e", "\r"}
    assert result["failed"]


def test_a_message_from_the_head_is_data(shown: list[str]) -> None:
    answer = {"failed": True, "findings": [{**FINDING, "where": "argus", "what": EVIL}]}
    for arguments in ({"jobspec": MINIMAL}, {"resubmitted_from": "grpo-1"}, {"state": "stopped", "submission_id": "a"}):
        message = Head(answer).run(**arguments)["msg"]
        assert "\x1b" not in message
        assert r"\x1b" in message


# --- Stopping and resubmitting ----------------------------------------------------------------------------------------


def test_stopping_needs_no_jobspec(shown: list[str]) -> None:
    head = Head({"changed": True, "submission_id": "grpo-1", "state": "STOPPED"})
    assert head.run(state="stopped", submission_id="grpo-1")["state"] == "STOPPED"
    who = f"{getpass.getuser()}@{platform.node()}"
    assert head.calls == [("stop", {"submission_id": "grpo-1", "requested_by": who, "check": False})]
    assert shown == ["", "Stopping grpo-1. While it starts, that may take a minute."]


def test_nothing_is_stopped_in_check_mode(shown: list[str]) -> None:
    head = Head({"changed": True, "submission_id": "grpo-1", "state": "STOPPED"}, check_mode=True)
    head.run(state="stopped", submission_id="grpo-1")
    assert head.calls[0][1]["check"] is True
    assert shown == []


@pytest.mark.parametrize(
    "arguments",
    [{"state": "stopped"}, {"state": "stopped", "submission_id": ""}, {"resubmitted_from": ""}],
)
def test_a_job_must_be_named(arguments: dict[str, Any], shown: list[str]) -> None:
    head = Head(SUBMITTED)
    assert head.run(**arguments) == {"failed": True, "changed": False, "msg": job_report.NO_JOB}
    assert head.calls == []


@pytest.mark.parametrize("submission_id", ["../x", "a b", "a\n", "A", "$(id)", "-e", "x" * 64])
@pytest.mark.parametrize("argument", ["resubmitted_from", "submission_id"])
def test_what_is_no_id_does_not_reach_the_head(argument: str, submission_id: Any, shown: list[str]) -> None:
    head = Head(SUBMITTED)
    state = {"state": "stopped"} if argument == "submission_id" else {}
    result = head.run(**state, **{argument: submission_id})
    assert result["msg"] == f"{submission_id!r} is not a submission id; status.yml lists the latest jobs"
    assert head.calls == []


@pytest.mark.parametrize("submission_id", ["../x", "a; id", "", None, "a\x1b[2J"])
def test_an_answer_for_what_is_no_id_is_not_used(submission_id: Any, shown: list[str]) -> None:
    result = Head({**SUBMITTED, "submission_id": submission_id}).run(jobspec=MINIMAL, wait=True)
    assert result["failed"]
    assert result["msg"] == f"the head answered for {submission_id!r}, which is not a submission id"


def test_a_job_is_submitted_again(shown: list[str], command_line: Callable[..., None]) -> None:
    command_line({"submission_id": None}, {"set": "deadline=2h"})
    head = Head(SUBMITTED)
    assert head.run(resubmitted_from="grpo-1", command_line=True, resume_from="grpo-1") == DONE
    ((verb, request),) = head.calls
    assert (verb, request["submission_id"], request["resume_from"]) == ("resubmit", "grpo-1", "grpo-1")
    assert request["command_line"] == [{"submission_id": None}, {"set": "deadline=2h"}]
    assert "jobspec" not in request
    assert shown == []


# --- Following --------------------------------------------------------------------------------------------------------


def test_a_job_is_followed_until_it_has_ended(shown: list[str]) -> None:
    head = Head(SUBMITTED, info(), info("ENDING"), info("ENDING"), info("SUCCEEDED", ended=False), info("SUCCEEDED"))
    result = head.run(jobspec=MINIMAL, wait=True)
    assert result == {**SUBMITTED, "state": "SUCCEEDED", "job": job("SUCCEEDED")}
    assert [name for name, _arguments in head.calls] == ["submit", *["status"] * 5]
    assert head.calls[1][1] == {"submission_id": "grpo-1", "wait_timeout": 7.0, "tail": 15}
    # A line that says nothing new is not repeated.
    assert shown[-4:] == [
        "grpo-1  RUNNING",
        "grpo-1  ENDING",
        "grpo-1  SUCCEEDED  collecting the final evidence",
        "grpo-1  SUCCEEDED",
    ]


FALSE: tuple[object, ...] = (False, "false", "False", "no", "0", 0, "off")


@pytest.mark.parametrize("value", ["true", "True", "yes", "1", 1, "on"])
def test_a_job_is_followed(value: object, shown: list[str]) -> None:
    """-e passes text."""
    head = Head(SUBMITTED, info("SUCCEEDED"))
    assert head.run(jobspec=MINIMAL, wait=value)["state"] == "SUCCEEDED"


def test_the_reason_of_a_job_that_did_less_is_shown(shown: list[str]) -> None:
    reason = "the data ended at step 8 of 12"
    head = Head(SUBMITTED, info("SUCCEEDED", reason=reason))
    assert head.run(jobspec=MINIMAL, wait=True)["state"] == "SUCCEEDED"
    assert f"Reason:  {reason}" in shown


def test_a_new_warning_is_shown_once_and_all_of_them_at_the_end(shown: list[str]) -> None:
    first = {"kind": "reward_raises", "text": "it raised for 1 of 4", "count": 1, "of": 4}
    more = {**first, "text": "it raised for 3 of 8", "count": 3, "of": 8}
    other = {"kind": "loss_nan", "text": "not\x1b[2J a number"}
    head = Head(
        SUBMITTED, info(warnings=[first]), info(warnings=[more, other]), info("SUCCEEDED", warnings=[more, other])
    )
    assert head.run(jobspec=MINIMAL, wait=True)["state"] == "SUCCEEDED"
    assert [line for line in shown if "it raised" in line or "a number" in line or "warning" in line] == [
        "WARNING  it raised for 1 of 4",
        "grpo-1  RUNNING  1 warning",
        "WARNING  not\\x1b[2J a number",
        "grpo-1  RUNNING  2 warnings",
        "grpo-1  SUCCEEDED  2 warnings",
        "SUCCEEDED with 2 warnings:",
        "  it raised for 3 of 8",
        "  not\\x1b[2J a number",
    ]


@pytest.mark.parametrize(
    ("arguments", "check_mode"), [({"wait": True}, True), *(({"wait": value}, False) for value in FALSE), ({}, False)]
)
def test_a_job_is_not_followed(arguments: dict[str, Any], check_mode: bool, shown: list[str]) -> None:
    head = Head(SUBMITTED, check_mode=check_mode)
    assert head.run(jobspec=MINIMAL, **arguments) == DONE
    assert len(head.calls) == 1


def test_the_result_of_a_job_that_fails_is_short(shown: list[str]) -> None:
    failure = {"kind": "data", "reason": "no column", "lines": ["KeyError: 'messages'"], "todo": "Correct it."}
    failed = info("FAILED", failure=failure, reason="no column")
    result = Head(SUBMITTED, failed).run(jobspec=MINIMAL, wait=True)
    assert result == {
        "failed": True,
        "changed": True,
        "submission_id": "grpo-1",
        "archive": "/private/jobs/grpo-1",
        "state": "FAILED",
        "kind": "data",
        "msg": "grpo-1 FAILED: no column. Its archive: run fetch",
    }
    assert "  KeyError: 'messages'" in shown
    assert shown[-1] == "Its log:  /private/jobs/grpo-1/logs"


def test_a_job_that_was_stopped_has_no_kind(shown: list[str]) -> None:
    result = Head(SUBMITTED, info("STOPPED", reason="stopped by ann", log=["the end"])).run(jobspec=MINIMAL, wait=True)
    assert (result["state"], result["kind"]) == ("STOPPED", None)
    assert "the end" in "\n".join(shown)


def test_a_head_without_a_connection(shown: list[str]) -> None:
    why = "container mvp-ray-head is not running on box. cluster_up.yml starts it"
    result = Head(AnsibleConnectionFailure(why)).run(jobspec=MINIMAL)
    assert result["msg"] == f"The head mvp-ray-head cannot be reached: {why}"
    assert result["failed"] and "head_is_gone" not in result


def test_a_head_that_comes_back(shown: list[str]) -> None:
    lost = AnsibleConnectionFailure("connection refused")
    head = Head(SUBMITTED, info(), NO_ANSWER, lost, info("SUCCEEDED"))
    assert head.run(jobspec=MINIMAL, wait=True)["state"] == "SUCCEEDED"
    assert shown.count("grpo-1  the head does not answer") == 2


def test_contact_in_between_starts_the_time_limit_anew(shown: list[str]) -> None:
    """Each of the two periods without an answer is shorter than the limit, both together are longer."""
    away = [NO_ANSWER] * 15
    head = Head(SUBMITTED, *away, info(), *away, info("SUCCEEDED"))
    assert head.run(jobspec=MINIMAL, wait=True)["state"] == "SUCCEEDED"


def test_following_ends_if_the_head_stays_away(shown: list[str]) -> None:
    head = Head(SUBMITTED, info(), NO_ANSWER)
    result = head.run(jobspec=MINIMAL, wait=True)
    assert (result["failed"], result["changed"]) == (True, True)
    assert str(NO_ANSWER) in result["msg"]
    assert result["msg"].endswith("run status")
    # 120 seconds, with a poll every 7.
    assert shown.count("grpo-1  the head does not answer") == 17


WAITING = {"unattended": True, "silent_for": 90.0, "notice": "waits for a steward: cluster_up.yml starts one"}


def test_a_job_that_its_restarted_head_does_not_know_is_followed_until_it_has_a_steward(shown: list[str]) -> None:
    head = Head(
        SUBMITTED, info(), NO_ANSWER, *[info(**WAITING)] * 10, info("RETRYING"), info(attempt=2), info("SUCCEEDED")
    )
    assert head.run(jobspec=MINIMAL, wait=True)["state"] == "SUCCEEDED"


def test_following_ends_if_nothing_looks_after_the_job(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    head = Head(SUBMITTED, info(**WAITING))
    slow_answers(head, monkeypatch)
    result = head.run(jobspec=MINIMAL, wait=True)
    assert result["failed"] and "state" in result and result["state"] not in ("FAILED", "STOPPED")
    assert "which may still be running: waits for a steward: cluster_up.yml starts one." in result["msg"]


def test_following_ends_if_neither_head_nor_launcher_answers(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    head = Head(SUBMITTED, info(problem="refused", silent_for=900.0))
    slow_answers(head, monkeypatch)
    result = head.run(jobspec=MINIMAL, wait=True)
    assert ": refused. " in result["msg"]
    assert result["msg"].endswith("run status")


def test_another_failure_ends_the_following(shown: list[str]) -> None:
    result = Head(SUBMITTED, ProgramError("wrong")).run(jobspec=MINIMAL, wait=True)
    assert (result["failed"], result["msg"], result["submission_id"]) == (True, "wrong", "grpo-1")
