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
from ansible_collections.argus.verl.plugins.action.ray_job import ActionModule, check_arguments
from ansible_collections.argus.verl.plugins.plugin_utils import following
from jobs import MINIMAL

# --- Arguments --------------------------------------------------------------------------------------------------------


def checked(**arguments: Any) -> tuple[list[str], dict[str, Any]]:
    """The keys of the findings, and the completed arguments."""
    findings = check_arguments(arguments)
    return [finding.key for finding in findings], arguments


def test_defaults_complete_the_jobspec_and_the_given_one_is_archived() -> None:
    given = copy.deepcopy(MINIMAL)
    found, arguments = checked(jobspec=given, defaults={"shared_root": "/mnt"})
    assert found == []
    assert arguments == {
        "given": MINIMAL,
        "jobspec": {**MINIMAL, "shared_root": "/mnt"},
        "secret_values": {},
        # With which the head checks again.
        "defaults": {"shared_root": "/mnt"},
    }
    assert given == MINIMAL


def test_resume_from_becomes_part_of_the_jobspec() -> None:
    _found, arguments = checked(jobspec={**MINIMAL, "resume_from": "old"}, resume_from="new")
    assert arguments["jobspec"]["resume_from"] == arguments["given"]["resume_from"] == "new"
    assert "resume_from" not in arguments
    _found, arguments = checked(jobspec={**MINIMAL, "resume_from": "old"}, resume_from="")
    assert arguments["jobspec"]["resume_from"] == "old"


def test_the_controller_passes_only_what_the_inventory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "of the environment")
    asked = {"jobspec": {**MINIMAL, "secrets": ["HF_TOKEN", "WANDB_API_KEY"]}}
    found, arguments = checked(**asked, secret_values={"HF_TOKEN": "given"}, secrets_from_environment=["WANDB_API_KEY"])
    assert (found, arguments["secret_values"]) == ([], {"HF_TOKEN": "given", "WANDB_API_KEY": "of the environment"})
    assert "secrets_from_environment" not in arguments
    # Not what is allowed but not asked for.
    found, arguments = checked(
        jobspec=MINIMAL, secrets_from_environment=["WANDB_API_KEY"], secret_values={"A": "12345"}
    )
    assert (found, arguments["secret_values"]) == ([], {})


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "VAULT_TOKEN", "HOME", "LD_PRELOAD", "THERE_IS_NONE"])
def test_a_jobspec_does_not_take_other_variables(name: str, monkeypatch: pytest.MonkeyPatch, shown: list[str]) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-operator")
    monkeypatch.setenv("VAULT_TOKEN", "of-the-operator")
    monkeypatch.setenv("LD_PRELOAD", "")
    monkeypatch.delenv("THERE_IS_NONE", raising=False)
    head = Head({"failed": True, "msg": "long"})
    result = head.run(jobspec={**MINIMAL, "secrets": [name]}, secrets_from_environment=["HF_TOKEN"])
    assert result[
        "msg"
    ] == f"The JobSpec was refused; nothing was changed: {1 + (name in ('HOME', 'LD_PRELOAD'))} error" + (
        "s, see the table above" if name in ("HOME", "LD_PRELOAD") else ", see the table above"
    )
    assert "is not allowed by the inventory" in "".join(shown)
    assert "of-the-operator" not in str(head.calls)
    assert head.calls[0][1]["secret_values"] == {}


def test_the_controller_refuses_what_only_the_inventory_decides(shown: list[str]) -> None:
    head = Head(SUBMITTED)
    defaults = {"shared_root": "/mnt", "ray": {"address": "http://10.0.0.5:8265"}}
    given = {**MINIMAL, "shared_root": "/", "ray": {"address": "http://evil.example"}}
    assert head.run(jobspec=given, defaults=defaults)["msg"].endswith(": 2 errors, see the table above")
    assert head.calls == []
    text = " ".join(" ".join(shown).split())
    assert "is /, but the shared root of this inventory is /mnt" in text
    assert "the cluster's token would be sent there" in text


def test_a_wrong_type_is_not_compared_with_the_inventory(shown: list[str]) -> None:
    found, _arguments = checked(jobspec={**MINIMAL, "ray": 7}, defaults={"ray": {"address": "http://10.0.0.5:8265"}})
    assert found == ["ray"]


def test_a_secret_without_a_value_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    found, arguments = checked(jobspec={**MINIMAL, "secrets": ["HF_TOKEN"]}, secrets_from_environment=["HF_TOKEN"])
    assert found == ["secrets.HF_TOKEN"]
    assert arguments["jobspec"]["secrets"] == []


def test_the_head_checks_the_rest_of_a_jobspec_with_findings() -> None:
    found, arguments = checked(jobspec={**MINIMAL, "model": "a b"}, defaults={"shared_root": "/mnt"})
    assert found == ["model"]
    assert [finding["key"] for finding in arguments["findings"]] == ["model"]
    assert arguments["jobspec"]["model"] == "x"
    assert arguments["jobspec"]["shared_root"] == "/mnt"
    assert arguments["given"]["model"] == "a b"


@pytest.mark.parametrize(
    "given", [None, ["a"], "text", {**MINIMAL, "workload": "dpo"}, {**MINIMAL, "tags": {"a": "\x1b"}}]
)
def test_nothing_is_left_to_check(given: Any) -> None:
    found, arguments = checked(jobspec=given, resume_from="old")
    assert found
    assert "findings" not in arguments


def test_a_finding_about_a_default_names_the_variable_of_the_inventory() -> None:
    defaults = {"env_vars": {"HF_HOME": "/x"}, "ray": {"runtime_env": {"pip": ["x"]}}, "retries": -1}
    findings = check_arguments({"jobspec": {**MINIMAL, "retries": -2}, "defaults": defaults})
    assert {finding.key: finding.where for finding in findings} == {
        "env_vars.HF_HOME": "job_defaults.env_vars.HF_HOME",
        "ray.runtime_env.pip": "job_defaults.ray.runtime_env.pip",
        "retries": "retries",
    }


@pytest.mark.parametrize(
    ("key", "defaults"),
    [
        ("shared_root", {"shared_root": "private"}),
        ("ray.address", {"ray": {"address": "x"}}),
        ("resources.nnodes", {"resources": {"nnodes": 0}}),
    ],
)
def test_a_default_from_another_variable_keeps_its_name(key: str, defaults: dict[str, Any]) -> None:
    findings = check_arguments({"jobspec": MINIMAL, "defaults": defaults})
    assert key in [finding.where for finding in findings]


# --- The command line -------------------------------------------------------------------------------------------------


@pytest.fixture
def command_line(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the extra variables of this run."""

    def given(*variables: dict[str, Any]) -> None:
        monkeypatch.setattr(ray_job, "extra_variables", lambda _loader: list(variables))

    return given


def test_the_command_line_changes_the_jobspec_and_is_archived(
    shown: list[str], tmp_path: Path, command_line: Callable[..., None]
) -> None:
    file = tmp_path / "grpo.yaml"
    file.write_text("workload: grpo\ncode_path: c\nmodel: m\ndataset: d\ntrainer_overrides: {a.b: 1, c: 2}\n")
    command_line({"retries": "2", "model": "other", "jobspec": None}, {"set": ["a.b=3"]})
    head = Head(SUBMITTED)
    head.run(file=str(file), command_line=True, defaults={"trainer_overrides": {"d": 4}})
    ((_name, arguments),) = head.calls
    assert arguments["given"] == {
        **{"workload": "grpo", "code_path": "c", "model": "other", "dataset": "d", "retries": 2},
        "trainer_overrides": ["c=2", "a.b=3"],
    }
    assert arguments["jobspec"]["trainer_overrides"] == ["d=4", "c=2", "a.b=3"]
    assert "command_line" not in arguments


def test_only_the_roles_take_keys_from_the_command_line(shown: list[str], command_line: Callable[..., None]) -> None:
    command_line({"retries": "2", "retrys": None})
    head = Head(SUBMITTED)
    head.run(jobspec=MINIMAL)
    assert head.calls[0][1]["given"] == MINIMAL


def test_a_jobspec_on_the_command_line_alone(shown: list[str], command_line: Callable[..., None]) -> None:
    command_line(dict(MINIMAL))
    head = Head(SUBMITTED)
    assert head.run(file="", command_line=True) == SUBMITTED
    assert head.calls[0][1]["given"] == MINIMAL


def test_neither_a_file_nor_a_key(shown: list[str], command_line: Callable[..., None]) -> None:
    command_line({"job_wait": None})
    assert Head(SUBMITTED).run(file="", command_line=True)["failed"]
    assert "no file was named" in "".join(shown)


def test_a_job_is_submitted_again_with_changes(shown: list[str], command_line: Callable[..., None]) -> None:
    command_line({"submission_id": "grpo-1", "deadline": "2h"}, {"set": "a=2"})
    head = Head({**REGISTERED, "jobspec": {**MINIMAL, "trainer_overrides": {"a": 1}}}, SUBMITTED)
    head.run(resubmitted_from="grpo-1", command_line=True)
    # The id on the command line is that of the earlier job.
    assert head.calls[1][1]["given"] == {**MINIMAL, "deadline": "2h", "trainer_overrides": ["a=2"]}


def test_a_misspelt_key_on_the_command_line_is_an_error(shown: list[str], command_line: Callable[..., None]) -> None:
    command_line({**MINIMAL, "retrys": None})
    head = Head({"failed": True, "msg": "long"})
    assert head.run(file="", command_line=True)["msg"].endswith(": 1 error, see the table above")
    assert 'did you mean "retries"?' in " ".join(" ".join(shown).split())
    assert [finding["key"] for finding in head.calls[0][1]["findings"]] == ["retrys"]


# --- The task ---------------------------------------------------------------------------------------------------------

SUBMITTED = {
    "changed": True,
    "submission_id": "grpo-1",
    "archive": "/private/jobs/grpo-1",
    "state": "SUBMITTED",
    "overrides": ["a=1"],
}
GONE = {"module_stdout": "", "module_stderr": "No such container: mvp-ray-head", "rc": 1, "failed": True}
NO_ANSWER = {"failed": True, "msg": "argus status on mvp-ray-head gave no answer", "head_is_gone": True}
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

    def execute(self, name: str, arguments: dict[str, Any], **_more: Any) -> dict[str, Any]:
        self.calls.append((name.removeprefix("argus.verl."), copy.deepcopy(arguments)))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return copy.deepcopy(answer)  # type: ignore[no-any-return]

    def run(self, **arguments: Any) -> dict[str, Any]:
        action = ActionModule.__new__(ActionModule)
        action._task = Task(arguments)
        action._loader = None
        action._task.check_mode = self.check_mode
        action._execute_module = self.execute
        variables = {"inventory_hostname": "mvp-ray-head", "ansible_inventory_sources": None}
        with patch.object(ray_job, "job_info", lambda _action, _node, request: self.execute("ray_job_info", request)):
            return action.run(None, variables)  # type: ignore[no-any-return]


def slow_answers(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer takes six seconds, as with a wait_timeout."""
    clock = Clock()
    monkeypatch.setattr(ray_job, "time", clock)
    execute = head.execute

    def slow(*arguments: Any, **more: Any) -> dict[str, Any]:
        clock.now += 6
        return execute(*arguments, **more)

    monkeypatch.setattr(head, "execute", slow)


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The lines that the plugin displays, with a clock of its own."""
    lines: list[str] = []
    monkeypatch.setattr(ray_job.ActionBase, "run", lambda *_arguments: {})
    monkeypatch.setattr(ray_job.display, "display", lambda text: lines.extend(text.split("\n")))
    monkeypatch.setattr(ray_job, "time", Clock())
    for module in (ray_job, following):
        monkeypatch.setattr(module, "playbook_command", lambda name, _variables: f"run {name}")
    return lines


def test_a_submission(shown: list[str]) -> None:
    head = Head({**SUBMITTED, "findings": []})
    assert head.run(jobspec=MINIMAL) == SUBMITTED
    assert head.calls == [("ray_job", {"jobspec": MINIMAL, "given": MINIMAL, "defaults": {}, "secret_values": {}})]
    assert shown == []


def test_a_jobspec_from_a_file(shown: list[str], tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("{workload: grpo, code_path: c, model: m, dataset: d}")
    head = Head(SUBMITTED)
    assert head.run(file=str(file)) == SUBMITTED
    assert head.calls[0][1]["jobspec"]["model"] == "m"
    assert "file" not in head.calls[0][1]


def test_a_file_that_does_not_exist(shown: list[str]) -> None:
    head = Head(SUBMITTED)
    result = head.run(file="none.yaml")
    assert result["msg"] == "The JobSpec was refused; nothing was changed: 1 error, see the table above"
    assert head.calls == []
    assert "there is no file 'none.yaml'" in "".join(shown)


def test_warnings_are_shown(shown: list[str]) -> None:
    result = Head({**SUBMITTED, "findings": [{**FINDING, "severity": "warning"}]}).run(jobspec=MINIMAL)
    assert result == SUBMITTED
    assert shown[2].split() == ["warning", "model", "is", "missing", "stage", "it"]


def test_a_reward_that_was_edited_and_not_staged(shown: list[str], tmp_path: Path) -> None:
    (tmp_path / "score.py").write_text("edited")
    head = Head({**SUBMITTED, "reward_files": {"user/code/score.py": "before"}})
    result = head.run(jobspec=MINIMAL, user_code=[str(tmp_path / "score.py")])
    assert result["state"] == "SUBMITTED"
    assert "user_code" not in head.calls[0][1]
    assert "score.py changed after stage.yml copied it" in " ".join(" ".join(shown).split())


def test_the_findings_of_the_head_are_shown(shown: list[str]) -> None:
    findings = [FINDING, {**FINDING, "where": "dataset"}, {**FINDING, "severity": "warning"}]
    result = Head({"failed": True, "msg": "long", "findings": findings}).run(jobspec=MINIMAL)
    message = "The JobSpec was refused; nothing was changed: 2 errors, see the table above"
    assert result == {"failed": True, "changed": False, "msg": message}
    assert [line.split()[0] for line in shown[1:]] == ["SEVERITY", "error", "error", "warning"]


def test_a_jobspec_that_nothing_can_check_further_does_not_reach_the_head(shown: list[str]) -> None:
    head = Head(SUBMITTED)
    assert head.run(jobspec={**MINIMAL, "workload": "dpo"})["failed"]
    assert head.calls == []


def test_the_findings_of_the_controller_remain_if_the_head_is_gone(shown: list[str]) -> None:
    head = Head(GONE)
    result = head.run(jobspec={**MINIMAL, "model": "a b"})
    assert "1 error" in result["msg"]
    assert head.calls[0][1]["findings"][0]["key"] == "model"
    assert "'a b' is neither a name" in "".join(shown)


def test_a_head_that_is_gone(shown: list[str]) -> None:
    result = Head(GONE).run(jobspec=MINIMAL)
    assert result["failed"]
    assert result["msg"].startswith("The head mvp-ray-head cannot be reached (No such container: mvp-ray-head)")
    assert result["msg"].endswith(". cluster_up.yml brings the cluster up")
    assert "head_is_gone" not in result


def test_a_failure_without_findings_is_returned(shown: list[str]) -> None:
    failure = {"failed": True, "msg": "could not be submitted"}
    assert Head(failure).run(jobspec=MINIMAL, wait=True) == failure


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


@pytest.mark.parametrize("answer", [{"failed": True, "msg": EVIL}, {**GONE, "module_stderr": EVIL}])
def test_a_message_from_the_head_is_data(answer: dict[str, Any], shown: list[str]) -> None:
    for arguments in ({"jobspec": MINIMAL}, {"resubmitted_from": "grpo-1"}, {"state": "stopped", "submission_id": "a"}):
        message = Head(answer).run(**arguments)["msg"]
        assert "\x1b" not in message
        assert r"\x1b" in message


# --- Stopping and resubmitting ----------------------------------------------------------------------------------------


def test_stopping_needs_no_jobspec(shown: list[str]) -> None:
    head = Head({"changed": True, "state": "STOPPED"})
    assert head.run(state="stopped", submission_id="grpo-1")["state"] == "STOPPED"
    who = f"{getpass.getuser()}@{platform.node()}"
    assert head.calls == [("ray_job", {"state": "stopped", "submission_id": "grpo-1", "requested_by": who})]
    assert shown == ["", "Stopping grpo-1. While it starts, that may take a minute."]


def test_nothing_is_stopped_in_check_mode(shown: list[str]) -> None:
    head = Head({"changed": True, "state": "STOPPED"}, check_mode=True)
    head.run(state="stopped", submission_id="grpo-1")
    assert shown == []


@pytest.mark.parametrize(
    "arguments", [{"state": "stopped"}, {"state": "stopped", "submission_id": ""}, {"resubmitted_from": ""}]
)
def test_a_job_must_be_named(arguments: dict[str, Any], shown: list[str]) -> None:
    head = Head(SUBMITTED)
    assert head.run(**arguments) == {"failed": True, "changed": False, "msg": following.NO_JOB}
    assert head.calls == []


@pytest.mark.parametrize("submission_id", ["../x", "a b", "a\n", "A", "$(id)", "-e", "x" * 64, 7, ["a"]])
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


REGISTERED = {"changed": False, "jobspec": {**MINIMAL, "submission_id": "grpo-1"}, "findings": []}
CHANGED = {**FINDING, "where": "job_spec.json", "what": "was changed", "severity": "warning"}


def test_a_job_is_submitted_again_under_a_new_id(shown: list[str]) -> None:
    head = Head(REGISTERED, SUBMITTED)
    assert head.run(resubmitted_from="grpo-1", defaults={"shared_root": "/mnt"}, resume_from="grpo-1") == SUBMITTED
    (first, looked_up), (second, arguments) = head.calls
    assert (first, second) == ("ray_job", "ray_job")
    assert looked_up == {"state": "registered", "submission_id": "grpo-1"}
    assert arguments["given"] == {**MINIMAL, "resume_from": "grpo-1"}
    assert arguments["resubmitted_from"] == "grpo-1"
    assert shown == []


def test_the_registry_can_be_elsewhere(shown: list[str]) -> None:
    head = Head(REGISTERED, SUBMITTED)
    head.run(resubmitted_from="grpo-1", registry="/r")
    assert [arguments["registry"] for _name, arguments in head.calls] == ["/r", "/r"]


def test_a_changed_archive_is_shown_in_the_same_table(shown: list[str]) -> None:
    warning = {**FINDING, "severity": "warning"}
    head = Head({**REGISTERED, "findings": [CHANGED]}, {**SUBMITTED, "findings": [warning]})
    assert head.run(resubmitted_from="grpo-1") == SUBMITTED
    assert [line.split()[:2] for line in shown[2:]] == [["warning", "job_spec.json"], ["warning", "model"]]


def test_a_changed_archive_is_shown_if_the_job_is_refused(shown: list[str]) -> None:
    asked = {**REGISTERED, "jobspec": {**MINIMAL, "secrets": ["AWS_SECRET_ACCESS_KEY"]}, "findings": [CHANGED]}
    head = Head(asked, {"failed": True, "msg": "long", "findings": [FINDING]})
    assert head.run(resubmitted_from="grpo-1")["msg"].endswith(": 1 error, see the table above")
    assert [line.split()[0] for line in shown[2:]] == ["error", "warning"]
    # The head gets the controller's findings with the rest of the JobSpec.
    assert head.calls[1][1]["findings"][0]["what"] == "is not allowed by the inventory"
    assert head.calls[1][1]["secret_values"] == {}


def test_a_job_that_cannot_be_submitted_again(shown: list[str]) -> None:
    head = Head({"failed": True, "msg": "grpo-1 is not registered on this head"})
    result = head.run(resubmitted_from="grpo-1")
    assert (result["failed"], result["msg"]) == (True, "grpo-1 is not registered on this head")
    assert len(head.calls) == 1


# --- Following --------------------------------------------------------------------------------------------------------


def test_a_job_is_followed_until_it_has_ended(shown: list[str]) -> None:
    head = Head(SUBMITTED, info(), info("SUCCEEDED", ended=False), info("SUCCEEDED"))
    result = head.run(jobspec=MINIMAL, defaults={"shared_root": "/mnt", "ray": {"address": "http://h:1"}}, wait=True)
    assert result == {**SUBMITTED, "state": "SUCCEEDED", "job": job("SUCCEEDED")}
    assert [name for name, _arguments in head.calls] == ["ray_job", *["ray_job_info"] * 3]
    assert head.calls[1][1] == {
        "submission_id": "grpo-1",
        "shared_root": "/mnt",
        "address": "http://h:1",
        "wait_timeout": 7.0,
        "tail": 15,
    }
    assert "wait" not in head.calls[0][1]
    assert shown[-3:] == [
        "grpo-1  RUNNING",
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
    assert head.run(jobspec=MINIMAL, **arguments) == SUBMITTED
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
    assert NO_ANSWER["msg"] in result["msg"]
    assert result["msg"].endswith("run status")
    # 120 seconds, with a poll every 7.
    assert shown.count("grpo-1  the head does not answer") == 18


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
    result = Head(SUBMITTED, {"failed": True, "msg": "wrong"}).run(jobspec=MINIMAL, wait=True)
    assert (result["failed"], result["msg"], result["submission_id"]) == (True, "wrong", "grpo-1")
