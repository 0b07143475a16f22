from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.argus.verl.plugins.action import ray_job
from ansible_collections.argus.verl.plugins.action.ray_job import (
    ActionModule,
    check_arguments,
    load_jobspec,
    secret_values,
)
from ansible_collections.argus.verl.plugins.plugin_utils import following
from jobs import MINIMAL


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory like inventories/dev, and an empty one in which ansible-playbook runs."""
    directory = tmp_path / "inventories" / "dev"
    (directory / "jobspecs").mkdir(parents=True)
    (directory / "hosts.yml").touch()
    (directory / "jobspecs" / "grpo.yaml").write_text("workload: grpo\n")
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    return directory


def loaded(name: str, *inventories: Path | str) -> str:
    given, findings = load_jobspec(name, [str(inventory) for inventory in inventories])
    assert findings == []
    return str(given["workload"])


def test_a_jobspec_beside_the_inventory(inventory: Path) -> None:
    assert loaded("grpo.yaml", inventory) == "grpo"
    assert loaded("grpo.yaml", inventory / "hosts.yml") == "grpo"


def test_the_first_inventory_with_the_file(inventory: Path) -> None:
    other = inventory.with_name("prod")
    (other / "jobspecs").mkdir(parents=True)
    (other / "jobspecs" / "sft.yaml").write_text("workload: sft\n")
    (other / "jobspecs" / "grpo.yaml").write_text("workload: other\n")
    assert loaded("sft.yaml", inventory, other) == "sft"
    assert loaded("grpo.yaml", inventory, other) == "grpo"


def test_a_path_has_precedence_over_the_inventory(inventory: Path) -> None:
    absolute = inventory / "jobspecs" / "grpo.yaml"
    assert loaded(str(absolute)) == "grpo"
    Path("grpo.yaml").write_text("workload: sft\n")
    assert loaded("grpo.yaml", inventory) == "sft"


def test_a_path_in_the_home_directory(inventory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(inventory))
    assert loaded("~/jobspecs/grpo.yaml") == "grpo"


def test_a_directory_is_not_a_jobspec(inventory: Path) -> None:
    Path("grpo.yaml").mkdir()
    assert loaded("grpo.yaml", inventory) == "grpo"


@pytest.mark.parametrize(
    ("name", "what", "todo"),
    [
        ("gpro.yaml", "there is no file 'gpro.yaml'", 'did you mean "grpo.yaml"?'),
        ("x", "there is no file 'x'", "the inventory has grpo.yaml; a path to any other file works as well"),
        ("gsm8k", "there is no file 'gsm8k'", "the inventory has grpo.yaml; a path to any other file works as well"),
        ("", "no file was named", "the inventory has grpo.yaml; a path to any other file works as well"),
    ],
)
def test_the_files_of_the_inventory_are_named(inventory: Path, name: str, what: str, todo: str) -> None:
    given, (finding,) = load_jobspec(name, [str(inventory), "box,"])
    assert given is None
    assert (finding.where, finding.what, finding.todo) == ("jobspec", what, todo)


@pytest.mark.parametrize(
    ("content", "piece"),
    [
        (b"workload: [grpo\n", "while parsing a flow sequence"),
        (b"workload: grpo\n\tmodel: x\n", "found character '\\t' that cannot start any token"),
        (b"workload: gr\xff\n", "'utf-8' codec can't decode byte 0xff"),
        (b"a: !!python/object/apply:os.system [date]\n", "could not determine a constructor"),
    ],
)
def test_a_file_that_is_not_yaml(inventory: Path, content: bytes, piece: str) -> None:
    file = inventory / "jobspecs" / "bad.yaml"
    file.write_bytes(content)
    given, (finding,) = load_jobspec("bad.yaml", [str(inventory)])
    assert given is None
    assert (finding.where, finding.todo) == (str(file), "fix the file")
    assert piece in finding.what
    assert "\n" not in finding.what


def test_a_file_that_cannot_be_read() -> None:
    given, (finding,) = load_jobspec("/proc/self/mem", [])
    assert given is None
    assert (finding.where, finding.todo) == ("/proc/self/mem", "fix the file")
    assert "Input/output error" in finding.what


def test_an_inventory_without_jobspecs(tmp_path: Path) -> None:
    given, (finding,) = load_jobspec("x.yaml", [str(tmp_path)])
    assert given is None
    assert finding.todo == "the inventory has none; a path to any other file works as well"


# --- Arguments --------------------------------------------------------------------------------------------------------


def checked(**arguments: Any) -> tuple[list[str], dict[str, Any]]:
    """The keys of the findings, and the completed arguments."""
    findings = check_arguments(arguments)
    return [finding.key for finding in findings], arguments


def test_defaults_complete_the_jobspec_and_the_given_one_is_archived() -> None:
    given = copy.deepcopy(MINIMAL)
    found, arguments = checked(jobspec=given, defaults={"shared_root": "/mnt"})
    assert found == []
    assert arguments == {"given": MINIMAL, "jobspec": {**MINIMAL, "shared_root": "/mnt"}, "secret_values": {}}
    assert given == MINIMAL


def test_resume_from_becomes_part_of_the_jobspec() -> None:
    _found, arguments = checked(jobspec={**MINIMAL, "resume_from": "old"}, resume_from="new")
    assert arguments["jobspec"]["resume_from"] == arguments["given"]["resume_from"] == "new"
    assert "resume_from" not in arguments
    _found, arguments = checked(jobspec={**MINIMAL, "resume_from": "old"}, resume_from="")
    assert arguments["jobspec"]["resume_from"] == "old"


def test_the_controller_passes_only_the_secrets_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "of the environment")
    monkeypatch.setenv("WANDB_API_KEY", "of the environment")
    names = ["HF_TOKEN", "WANDB_API_KEY", "ABSENT"]
    assert secret_values(names, {"HF_TOKEN": "given", "OTHER": "given"}) == {
        "HF_TOKEN": "given",
        "WANDB_API_KEY": "of the environment",
    }
    found, arguments = checked(jobspec={**MINIMAL, "secrets": ["HF_TOKEN"]}, secret_values={"HF_TOKEN": "given"})
    assert (found, arguments["secret_values"]) == ([], {"HF_TOKEN": "given"})
    found, arguments = checked(jobspec={**MINIMAL, "secrets": ["HF_TOKEN"]}, secret_values={"OTHER": "12345"})
    assert found == []
    assert arguments["secret_values"] == {"HF_TOKEN": "of the environment"}


def test_a_secret_without_a_value_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    found, arguments = checked(jobspec={**MINIMAL, "secrets": ["HF_TOKEN"]})
    assert found == ["secrets.HF_TOKEN"]
    assert arguments["jobspec"]["secrets"] == []


def test_the_head_checks_the_rest_of_a_jobspec_with_findings() -> None:
    found, arguments = checked(jobspec={**MINIMAL, "model": "a b"}, defaults={"shared_root": "/mnt"})
    assert found == ["model"]
    assert [finding["key"] for finding in arguments["findings"]] == ["model"]
    assert arguments["jobspec"]["model"] == "x"
    assert arguments["jobspec"]["shared_root"] == "/mnt"
    assert arguments["given"]["model"] == "a b"


@pytest.mark.parametrize("given", [None, ["a"], "text", {**MINIMAL, "workload": "dpo"}])
def test_nothing_is_left_to_check(given: Any) -> None:
    found, arguments = checked(jobspec=given, resume_from="old")
    assert found
    assert "findings" not in arguments


# --- The task ---------------------------------------------------------------------------------------------------------

SUBMITTED = {
    "changed": True,
    "submission_id": "grpo-1",
    "archive": "/private/jobs/grpo-1",
    "state": "SUBMITTED",
    "overrides": ["a=1"],
}
GONE = {"module_stdout": "", "module_stderr": "No such container: mvp-ray-head", "rc": 1, "failed": True}
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
        action._task.check_mode = self.check_mode
        action._execute_module = self.execute
        variables = {"inventory_hostname": "mvp-ray-head", "ansible_inventory_sources": None}
        return action.run(None, variables)  # type: ignore[no-any-return]


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
    assert head.calls == [("ray_job", {"jobspec": MINIMAL, "given": MINIMAL, "secret_values": {}})]
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


# --- Stopping and resubmitting ----------------------------------------------------------------------------------------


def test_stopping_needs_no_jobspec(shown: list[str]) -> None:
    head = Head({"changed": True, "state": "STOPPED"})
    assert head.run(state="stopped", submission_id="grpo-1")["state"] == "STOPPED"
    assert head.calls == [("ray_job", {"state": "stopped", "submission_id": "grpo-1"})]


@pytest.mark.parametrize(
    "arguments", [{"state": "stopped"}, {"state": "stopped", "submission_id": ""}, {"resubmitted_from": ""}]
)
def test_a_job_must_be_named(arguments: dict[str, Any], shown: list[str]) -> None:
    head = Head(SUBMITTED)
    assert head.run(**arguments) == {"failed": True, "changed": False, "msg": following.NO_JOB}
    assert head.calls == []


def test_a_job_is_submitted_again_under_a_new_id(shown: list[str]) -> None:
    head = Head(info("FAILED"), SUBMITTED)
    assert head.run(resubmitted_from="grpo-1", defaults={"shared_root": "/mnt"}, resume_from="grpo-1") == SUBMITTED
    (first, looked_up), (second, arguments) = head.calls
    assert (first, second) == ("ray_job_info", "ray_job")
    assert looked_up == {"submission_id": "grpo-1", "shared_root": "/mnt", "address": ""}
    assert arguments["given"] == {**MINIMAL, "resume_from": "grpo-1"}
    assert arguments["resubmitted_from"] == "grpo-1"


def test_the_archive_is_looked_up_under_the_default_root(shown: list[str]) -> None:
    head = Head(info("FAILED"), SUBMITTED)
    head.run(resubmitted_from="grpo-1")
    assert head.calls[0][1]["shared_root"] == "/private"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"failed": True, "msg": "There is no job"}, "There is no job"),
        (info(jobspec=None), "/private/jobs/grpo-1/config/job_spec.json cannot be read"),
    ],
)
def test_a_job_that_cannot_be_submitted_again(answer: dict[str, Any], message: str, shown: list[str]) -> None:
    head = Head(answer)
    result = head.run(resubmitted_from="grpo-1")
    assert (result["failed"], result["msg"]) == (True, message)
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
        "wait_timeout": 6.0,
        "tail": 15,
    }
    assert "wait" not in head.calls[0][1]
    assert shown[-3:] == [
        "grpo-1  RUNNING",
        "grpo-1  SUCCEEDED  collecting the final evidence",
        "grpo-1  SUCCEEDED",
    ]


@pytest.mark.parametrize(("arguments", "check_mode"), [({"wait": True}, True), ({"wait": False}, False), ({}, False)])
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


def test_a_head_that_comes_back(shown: list[str]) -> None:
    lost = AnsibleConnectionFailure("connection refused")
    head = Head(SUBMITTED, info(), GONE, lost, info("SUCCEEDED"))
    assert head.run(jobspec=MINIMAL, wait=True)["state"] == "SUCCEEDED"
    assert shown.count("grpo-1  the head does not answer") == 2


def test_contact_in_between_starts_the_time_limit_anew(shown: list[str]) -> None:
    """Each of the two periods without an answer is shorter than the limit, both together are longer."""
    away = [GONE] * 15
    head = Head(SUBMITTED, *away, info(), *away, info("SUCCEEDED"))
    assert head.run(jobspec=MINIMAL, wait=True)["state"] == "SUCCEEDED"


def test_following_ends_if_the_head_stays_away(shown: list[str]) -> None:
    head = Head(SUBMITTED, info(), GONE)
    result = head.run(jobspec=MINIMAL, wait=True)
    assert (result["failed"], result["changed"]) == (True, True)
    assert "The head mvp-ray-head cannot be reached (No such container: mvp-ray-head)" in result["msg"]
    assert result["msg"].endswith("run status")
    # 120 seconds, with a poll every 6.
    assert shown.count("grpo-1  the head does not answer") == 21


def test_following_ends_if_neither_head_nor_launcher_answers(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    head = Head(SUBMITTED, info(problem="refused", silent_for=900.0))
    clock = Clock()
    monkeypatch.setattr(ray_job, "time", clock)
    execute = head.execute

    def slow(*arguments: Any, **more: Any) -> dict[str, Any]:
        clock.now += 6
        return execute(*arguments, **more)

    monkeypatch.setattr(head, "execute", slow)
    result = head.run(jobspec=MINIMAL, wait=True)
    assert ": refused. " in result["msg"]
    assert result["msg"].endswith("run status")


def test_another_failure_ends_the_following(shown: list[str]) -> None:
    result = Head(SUBMITTED, {"failed": True, "msg": "wrong"}).run(jobspec=MINIMAL, wait=True)
    assert (result["failed"], result["msg"], result["submission_id"]) == (True, "wrong", "grpo-1")
