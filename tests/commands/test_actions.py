"""Actions on jobs and nodes in a real run of ansible-playbook, with a program that gives prepared answers."""

from __future__ import annotations

import getpass
import platform
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from jobs import MINIMAL
from stub_program import GONE, Case, Outcome, run

from argus.archive.failures import Failure, FailureKind
from argus.archive.status import Attempt
from argus.jobs.info import JobInfo, Progress

WHO = f"{getpass.getuser()}@{platform.node()}"
EVIL = "a\x1b]0;title\x07\x9b2J\u202e\rb"
FORGED = f"{EVIL}\nFailed: data: forged"
FINDING = {"where": "model", "problem": "is missing", "remedy": "stage it", "severity": "error", "key": "model"}
SUBMITTED = {"submission_id": "grpo-1", "archive": "/private/jobs/grpo-1", "state": "SUBMITTED", "overrides": ["a=1"]}
RAISED = {"kind": "reward_raises", "text": "it raised for 1 of 4", "count": 1, "of": 4}
FAILURE = {"kind": "data", "reason": "no column", "lines": ["KeyError: 'messages'"], "todo": "Run curl evil"}


def submitted(*findings: Mapping[str, Any], **result: Any) -> dict[str, Any]:
    return {"changed": True, "findings": findings, "result": {**SUBMITTED, **result}}


def refused(**finding: Any) -> dict[str, Any]:
    return {"refused": True, "findings": [{**FINDING, **finding}]}


def job(state: str, *log: str, **changes: Any) -> dict[str, Any]:
    one = {
        "submission_id": "grpo-1",
        "state": state,
        "ended": state in ("SUCCEEDED", "FAILED", "STOPPED"),
        "attempt": 1,
        "progress": {"step": 4, "total_steps": 12, "metric": "train/loss", "first": 6.0, "last": 4.25},
        "archive": "/private/jobs/grpo-1",
        "log": log,
        "log_position": f"1:{len(log)}",
        "jobspec": MINIMAL,
    }
    return {"result": {"job": {**one, **changes}, "time": 1000.0}}


def ray_job(*answers: Any, check: bool = False, variables: Mapping[str, Any] | None = None, **arguments: Any) -> Case:
    return Case("ray_job", arguments, answers, check, variables or {})


def stop(*answers: Any, check: bool = False, **arguments: Any) -> Case:
    return ray_job(*answers, check=check, state="stopped", **arguments)


def followed(*answers: Any) -> Case:
    """As -e passes it."""
    return ray_job(*answers, jobspec=MINIMAL, wait="yes")


def log(*answers: Any, show: str = "log", **arguments: Any) -> Case:
    return Case("ray_job_info", {"submission_id": "grpo-1", "show": show, **arguments}, answers)


def hostile(text: str) -> dict[str, Any]:
    """A job with the text wherever a job can put one."""
    names = ("workload", "code_id", "reason", "driver_host", "driver_node_ip", "archive", "problem")
    job = JobInfo(
        **dict.fromkeys(names, text),
        submission_id=f"grpo-1{text}",
        state=f"RUNNING{text}",
        tags={text: text},
        lineage=dict.fromkeys(("resumed_from", "checkpoint", "resubmitted_from"), text),
        attempts=(Attempt(1, text, text, text), Attempt(2, text)),
        attempt=2,
        failure=Failure(FailureKind.UNKNOWN, text, (text,), text),
        progress=Progress(1, 2, text, 1.0, 2.0),
        started_at=1.0,
        ended_at=2.0,
        log=(EVIL, EVIL),
    )
    return {**job.to_json(), "jobspec": MINIMAL}


def drain(*answers: tuple[list[str], float] | str, check: bool = False, **arguments: Any) -> Case:
    replies = [
        answer if isinstance(answer, str) else {"changed": True, "result": {"jobs": answer[0], "waited": answer[1]}}
        for answer in answers
    ]
    options = {"node_name": "gpu-1", "node_id": "a", "state": "drained", **arguments}
    return Case("ray_node_drain", options, replies, check)


def nodes(*answers: Any, **arguments: Any) -> Case:
    return Case("ray_cluster_info", {"expected": EXPECTED, "show": "never", **arguments}, answers)


EXPECTED = [{"name": "head", "head": True}, {"name": "worker-0"}, {"name": "worker-1", "absent": "no machine"}]
ADDRESSES = ("10.0.0.1", "fd00::1", "$(id)", "10.0.0.1;id", "fe80::1%$(id)", "head", "", None, 7.5, ["10.0.0.1"])


def presence(*awaited: str, addresses: Sequence[Any] = ()) -> dict[str, Any]:
    result = {"complete": not awaited, "missing": [], "awaited": awaited, "problem": "", "jobs": []}
    return {"result": {**result, "nodes": [{"node_ip": address} for address in addresses]}}


def evidence(answer: Any, check: bool = False) -> Case:
    return Case("job_archive", {"state": "examined", "submission_id": "grpo-1"}, [answer], check)


STOPPED = {"changed": True, "result": {"submission_id": "grpo-1", "state": "STOPPED"}}
CASES = {
    "submit": ray_job(
        submitted(facts={"notes": ["8 steps"]}),
        jobspec={**MINIMAL, "secrets": ["AWS_SECRET_ACCESS_KEY"]},
        defaults={"retries": 2},
        secret_values={"HF_TOKEN": "given"},
    ),
    "submit_check": ray_job(submitted(facts={"notes": ["8 steps"]}), jobspec=MINIMAL, check=True, wait=True),
    "resubmit": ray_job(submitted(), resubmitted_from="grpo-1", command_line=True),
    "file": ray_job(submitted(), file="grpo.yaml", command_line=True),
    "no_such_file": ray_job(submitted(), file="none.yaml"),
    "command_line_alone": ray_job(submitted(), file="", command_line=True),
    "neither_file_nor_key": ray_job(submitted(), file=""),
    "sweep": ray_job(
        submitted(submission_id="lr-0"),
        refused(),
        jobspec=MINIMAL,
        command_line=True,
        limits={"user": {"jobs": 4}},
        sweep={
            "name": "lr",
            "at_once": 1,
            "jobs": [{"submission_id": f"lr-{number}", "set": [f"lr={number}"]} for number in range(3)],
        },
    ),
    "warned": ray_job(
        submitted({**FINDING, "severity": "warning"}, files={"user/code/score.py": "before"}),
        jobspec=MINIMAL,
        user_code=["score.py"],
    ),
    "refused": ray_job({**refused(), "findings": [FINDING, {**FINDING, "where": "data"}]}, jobspec=MINIMAL, wait=True),
    "defect": ray_job(refused(where="argus", problem=f"failed {EVIL}", key="operation"), jobspec=MINIMAL),
    "no_container": ray_job(GONE, jobspec=MINIMAL),
    "no_machine": ray_job(jobspec=MINIMAL, variables={"ansible_connection": "ssh", "ansible_host": "nowhere.invalid"}),
    "forged_id": ray_job(submitted(submission_id="a; id\x1b[2J"), jobspec=MINIMAL, wait=True),
    "stop": stop(STOPPED, submission_id="grpo-1"),
    "stop_check": stop(STOPPED, submission_id="grpo-1", check=True),
    "stop_nothing": stop(STOPPED),
    "stop_no_id": stop(STOPPED, submission_id="../$(id)"),
    "resubmit_no_id": ray_job(submitted(), resubmitted_from="a\n"),
    "succeeds": followed(
        submitted(),
        job("RUNNING", warnings=[RAISED]),
        job("SUCCEEDED", warnings=[RAISED], reason="the data ended at step 8 of 12"),
    ),
    "fails": followed(submitted(), job("FAILED", EVIL, failure=FAILURE, reason=f"no column {EVIL}")),
    "is_stopped": followed(submitted(), job("STOPPED", "the end", reason="stopped by ann")),
    "log": log(job("RUNNING", "a", "\x1b[A\x1b[36mb\x1b[0m"), tail=2),
    "first_errors": log(job("FAILED", "the driver:", "  KeyError"), first_errors=True),
    "no_log": log(job("QUEUED", reason="1 worker is free")),
    "log_of_ended": log(job("FAILED", "a", failure=FAILURE), show="follow"),
    "log_followed": log(
        job("RUNNING", "a 1"),
        job("RUNNING", f"b{EVIL}", log_position="1:9", warnings=[RAISED], notice="waits for its placement"),
        job("FAILED", "c", log_position="1:12", notice="", failure=FAILURE, warnings=[RAISED], reason=EVIL),
        job("FAILED", log_position="1:12", failure=FAILURE, warnings=[RAISED], reason=EVIL),
        show="follow",
        rank="3",
        first_errors=True,
    ),
    "status": log({"result": {"job": hostile(FORGED), "time": 9.0}}, show="status"),
    "list": log(
        {"result": {"jobs": [hostile(FORGED)], "total": 1, "directory": FORGED, "problem": FORGED, "time": 9.0}},
        show="status",
        submission_id="",
    ),
    "drain": drain((["a", "b"], 0), (["b", "a"], 60.0), (["b"], 12.5), ([], 3.0), wait_timeout="3600"),
    "drain_too_long": drain((["a"], 0), (["a"], 60.0), (["a"], 10.0), wait_timeout=70),
    "drain_free": drain(([], 0), wait_timeout=9),
    "drain_check": drain((["a"], 0), wait_timeout=9, check=True),
    "drain_disruptive": drain((["a"], 0), wait_timeout=9, allow_disruption=True),
    "drain_gone": drain((["a"], 0), GONE, wait_timeout=9),
    "evidence": evidence({"changed": True, "result": {"files": 7, "nodes": ["head", "w"], "problems": ["no py-spy"]}}),
    "evidence_check": evidence({"changed": True, "result": {"files": 0, "nodes": []}}, check=True),
    "evidence_gone": evidence(GONE),
    "nodes": nodes(presence(addresses=ADDRESSES), earlier={"began": time.time() - 60, "problem": ""}),
    "nodes_head_restarts": nodes(GONE, presence(), wait_timeout="99"),
    "nodes_join": nodes(presence("worker-0"), presence(), wait_timeout=99),
    # Nodes that joined earlier do not prolong the wait, and neither does none.
    "nodes_joined_before": nodes(presence("worker-0"), wait_timeout=99, earlier={"awaited": ["worker-0"]}),
    "nodes_none": nodes(presence("head", "worker-0"), wait_timeout=99),
    "nodes_gone": nodes(GONE),
    "nodes_refused": nodes(refused(), wait_timeout=99),
    # Without the head, no other node can join.
    "nodes_no_head": nodes(GONE, wait_timeout=99, expected=[{**EXPECTED[0], "absent": "x"}, EXPECTED[1]]),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    directory = tmp_path_factory.mktemp("actions")
    (directory / "grpo.yaml").write_text("workload: grpo\ntrainer_overrides: {a.b: 1, c: 2}\n")
    (directory / "score.py").write_text("edited")
    secrets = {"WANDB_API_KEY": "of the environment", "AWS_SECRET_ACCESS_KEY": "of the operator"}
    return run(directory, CASES, "-e", '{"set": ["a.b=3"]}', **secrets)


def test_the_request_of_a_submission(outcomes: dict[str, Outcome]) -> None:
    ((verb, request),) = outcomes["submit"].calls
    jobspec = {**MINIMAL, "secrets": ["AWS_SECRET_ACCESS_KEY"]}
    # Only the roles take keys from the command line. Of the environment, only what the inventory allows is sent.
    arguments = {"jobspec": jobspec, "command_line": [], "defaults": {"retries": 2}, "secrets": {"HF_TOKEN": "given"}}
    run = {"shared_root": "/private", "notify": "", "limits": {}, "submitted_by": WHO, "check": False}
    assert (verb, request) == ("submit", {**arguments, **run})
    assert outcomes["submit"].result.items() >= {**SUBMITTED, "changed": True, "failed": False}.items()


def test_jobspecs_of_files_and_of_the_command_line(outcomes: dict[str, Outcome]) -> None:
    (_verb, of_file), (_verb, alone) = (outcomes[name].calls[0] for name in ("file", "command_line_alone"))
    assert of_file["jobspec"] == {"workload": "grpo", "trainer_overrides": {"a.b": 1, "c": 2}}
    assert alone["jobspec"] == {}
    assert {"set": ["a.b=3"]} in of_file["command_line"] and of_file["command_line"] == alone["command_line"]
    for name, text in (("no_such_file", "no file 'none.yaml'"), ("neither_file_nor_key", "no file was named")):
        assert outcomes[name].result["failed"] and text in "".join(outcomes[name].shown) and not outcomes[name].calls


def test_a_job_is_submitted_again(outcomes: dict[str, Outcome]) -> None:
    ((verb, request),) = outcomes["resubmit"].calls
    assert (verb, request["submission_id"]) == ("resubmit", "grpo-1")
    assert {"set": ["a.b=3"]} in request["command_line"] and "jobspec" not in request


def test_a_sweep_ends_with_the_first_job_that_is_refused(outcomes: dict[str, Outcome]) -> None:
    result, requests = outcomes["sweep"].result, [request for _verb, request in outcomes["sweep"].calls]
    assert result["failed"] and result["changed"] and [job["submission_id"] for job in result["jobs"]] == ["lr-0"]
    assert [request["command_line"][-1] for request in requests] == [
        {"set": [f"submission_id=lr-{number}", f"lr={number}"]} for number in range(2)
    ]
    assert requests[0]["limits"] == {"user": {"jobs": 4}, "sweep": {"jobs": 1}}


def test_check_mode(outcomes: dict[str, Outcome]) -> None:
    checks = {name: outcome.calls for name, outcome in outcomes.items() if name.endswith("_check")}
    assert len(checks) == 4
    assert all(len(calls) == 1 and calls[0][1]["check"] is True for calls in checks.values()), checks


SHOWN = {
    "submit": ["Job grpo-1: SUBMITTED", "8 steps", "Archive:  /private/jobs/grpo-1", "Status:"],
    "submit_check": ["8 steps", "The job would be SUBMITTED"],
    "warned": ["warning", "is missing", "score.py changed after stage.yml"],
    "refused": ["error", "model", "error", "data"],
    "stop": ["Stopping grpo-1", "Job grpo-1: STOPPED"],
    "succeeds": [
        *("WARNING  it raised", "grpo-1  RUNNING", "1 warning", "grpo-1  SUCCEEDED", "Reason:  the data ended"),
        *("SUCCEEDED with 1 warning:", "  it raised"),
    ],
    "fails": ["KeyError: 'messages'", "Its log:  /private/jobs/grpo-1/logs"],
    "is_stopped": ["the end"],
    "log": ["Job grpo-1: RUNNING; last 2 lines of /private/jobs/grpo-1/logs/driver.log\na\nb"],
    "first_errors": ["first error of each process of", "\nthe driver:\n  KeyError"],
    "no_log": ["Job grpo-1: QUEUED, no log yet: 1 worker is free"],
    "log_of_ended": ["last line of", "\na\n", "data: no column"],
    "log_followed": [
        *("\na 1", "Following grpo-1", "\nba", "WARNING  it raised", "waits for its placement", "\nc\n"),
        *("grpo-1  FAILED  step 4/12", "data: no column", "1 warning"),
    ],
    "drain": ["gets no new work", "a, b", "after 72 s: waits for b", "after 76 s: no job uses it"],
    "drain_too_long": ["error", "is still used after 70 s by a"],
    "drain_check": ["warning", "would get no new work"],
    "drain_disruptive": ["warning", "its removal ends a"],
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_shown(outcomes: dict[str, Outcome], name: str) -> None:
    text, begin = "\n".join(outcomes[name].shown), 0
    for part in SHOWN[name]:
        assert part in text[begin:], text
        begin = text.index(part, begin) + len(part)


def test_text_of_jobs_reaches_the_terminal_as_data(outcomes: dict[str, Outcome]) -> None:
    """Lines of a log, causes and messages are written by jobs. The remedy is ours."""
    for name, outcome in outcomes.items():
        text = "\n".join([*outcome.shown, str(outcome.result.get("msg", ""))])
        assert not set(text) & {"\x1b", "\x07", "\x9b", "\u202e", "\r"}, name
        assert "curl evil" not in text, name
        # Nothing looks like a line of ours.
        assert not any(line.startswith("Failed: data: forged") for line in outcome.shown), name
    assert all("forged" in "".join(outcomes[name].shown) for name in ("status", "list"))


MESSAGES = {
    "refused": "2 errors",
    "defect": r"failed a\x1b]0;title\x07\x9b2J\u202e\x0db",
    "no_container": "there is no container no_container on box",
    "no_machine": "The head no_machine cannot be reached: ",
    "forged_id": "which is not a submission id",
    "stop_nothing": "No job was named",
    "stop_no_id": "'../$(id)' is not a submission id",
    "resubmit_no_id": r"'a\n' is not a submission id",
    "fails": "grpo-1 FAILED: no column",
    "is_stopped": "grpo-1 STOPPED: stopped by ann",
    "drain_gone": "there is no container",
    "evidence_gone": "there is no container",
}


@pytest.mark.parametrize("name", MESSAGES)
def test_failures(outcomes: dict[str, Outcome], name: str) -> None:
    result = outcomes[name].result
    assert result["failed"] and MESSAGES[name] in result["msg"]
    if name.endswith(("_no_id", "_nothing")):
        assert not outcomes[name].calls


def test_the_result_of_a_job_that_is_followed(outcomes: dict[str, Outcome]) -> None:
    results = {name: outcomes[name].result for name in ("succeeds", "fails", "is_stopped")}
    kinds = [(result["failed"], result["state"], result.get("kind")) for result in results.values()]
    assert kinds == [(False, "SUCCEEDED", None), (True, "FAILED", "data"), (True, "STOPPED", None)]
    # Ansible prints the whole result of a failure.
    assert "overrides" not in results["fails"] and results["succeeds"]["job"]["state"] == "SUCCEEDED"
    request = {"shared_root": "/private", "submission_id": "grpo-1", "wait_timeout": 7.0, "tail": 15}
    assert outcomes["succeeds"].calls[1] == ("status", request)


def test_a_log_is_followed_from_where_it_was_read(outcomes: dict[str, Outcome]) -> None:
    requests = [request for _verb, request in outcomes["log_followed"].calls]
    assert [request["log_position"] for request in requests] == [None, "1:1", "1:9", "1:12"]
    assert [(request["rank"], request["first_errors"]) for request in requests] == [("3", True), *[("3", False)] * 3]
    assert "failed" not in outcomes["log_of_ended"].result or not outcomes["log_of_ended"].result["failed"]
    assert len(outcomes["log_of_ended"].calls) == 1


def test_a_drained_node_is_asked_until_no_job_uses_it(outcomes: dict[str, Outcome]) -> None:
    requests = [request for _verb, request in outcomes["drain"].calls]
    assert [request.get("held_by") for request in requests] == [None, ["a", "b"], ["a", "b"], ["b"]]
    assert [request.get("wait_timeout") for request in requests] == [None, 60.0, 60.0, 60.0]
    assert outcomes["drain"].result.items() >= {"changed": True, "jobs": [], "waited": 75.5}.items()
    late = outcomes["drain_too_long"]
    assert (late.result["failed"], late.result["waited"]) == (True, 70.0)
    assert [request.get("wait_timeout") for _verb, request in late.calls] == [None, 60.0, 10.0]
    assert [len(outcomes[name].calls) for name in ("drain_free", "drain_check", "drain_disruptive")] == [1, 1, 1]


def test_nodes_are_awaited_as_long_as_one_may_join(outcomes: dict[str, Outcome]) -> None:
    calls = {name: len(outcome.calls) for name, outcome in outcomes.items() if name.startswith("nodes")}
    again = {"nodes_head_restarts", "nodes_join"}
    assert calls == {name: 2 if name in again else 1 for name in calls}
    (_verb, first), (_verb, second) = outcomes["nodes_head_restarts"].calls
    assert 99 >= first["wait_timeout"] > second["wait_timeout"] > 9
    assert all(outcomes[name].result["complete"] for name in ("nodes", *again))
    assert outcomes["nodes"].result["waited"] >= 60


@pytest.mark.parametrize("name", ["nodes_gone", "nodes_refused", "nodes_no_head"])
def test_without_an_answer_no_node_is_as_expected(outcomes: dict[str, Outcome], name: str) -> None:
    result = outcomes[name].result
    assert (result["complete"], result["failed"]) == (False, False) and result["problem"]
    assert result["missing"] == [row[0] for row in result["rows"]] and len(result["missing"]) >= 2
    assert result["nodes"] == result["jobs"] == []


def test_an_address_is_one(outcomes: dict[str, Outcome]) -> None:
    addresses = [node["node_ip"] for node in outcomes["nodes"].result["nodes"]]
    assert addresses == ["10.0.0.1", "fd00::1", *[""] * 8]


def test_the_row_of_a_node_with_evidence(outcomes: dict[str, Outcome]) -> None:
    assert outcomes["evidence"].result["row"] == ["evidence", 7, "head, w", "no py-spy"]
    assert outcomes["evidence_check"].result["row"] == ["evidence_check", 0, None, None]
    gone = outcomes["evidence_gone"].result
    assert gone["row"] == ["evidence_gone", 0, None, gone["msg"]]
