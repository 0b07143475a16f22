"""The launcher as a job runs it: from the copy in its archive, in a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from launcher_job import CODE_ID, Setup
from real_processes import alive

from argus.archive import failures
from argus.archive.archive import Archive
from argus.hooks import redact
from argus.launcher.launch import Launcher
from argus.queue import attempts


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Setup]:
    made = Setup(tmp_path)
    yield made
    for process in made.started:
        # Not kill: what it started would stay.
        process.terminate()
        process.communicate(timeout=30)


def wait_for(condition: Callable[[], Any], seconds: float = 20) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.02)
    return value


def pids(log: str) -> list[int]:
    (line,) = (line for line in log.splitlines() if line.startswith("pids"))
    return [int(pid) for pid in line.split()[1:]]


def all_end(*running: int) -> bool:
    """Whether processes end that were killed: on a busy machine, the kernel takes a moment for it."""
    return bool(wait_for(lambda: not any(map(alive, running))))


def test_a_job_that_succeeds(job: Setup) -> None:
    before = time.time()
    code, output = job.run("ok")
    assert code == 0
    assert output == job.log()
    assert output.splitlines() == [
        f"MVP_PRECHECK_VERL_FILE={job.code_path}/verl/__init__.py",
        f"MVP_PRECHECK_MARKER={CODE_ID}",
        """overrides ['mode=ok', "note='a, b'"]""",
        f"deterministic 1 path {job.code_path}",
        "trained",
    ]
    status = job.archive.status_json()
    assert before < status["started_at"] < status["ended_at"] < time.time()
    assert (status["state"], status["exit_code"], status["steps"]) == ("SUCCEEDED", 0, 2)
    assert status["driver"]["pid"] == job.started[0].pid
    assert (status["reason"], status["failure"]) == ("", None)
    assert [(ended["attempt"], ended["state"]) for ended in status["attempts"]] == [(1, "SUCCEEDED")]
    assert (job.events(), job.index()) == (["RUNNING", "SUCCEEDED"], [])
    versions = job.archive.read_mapping("config/versions.json")
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))


def test_a_job_that_fails(job: Setup) -> None:
    code, output = job.run("fail")
    assert code == 3
    assert "Traceback: no such thing\n" in output
    assert output == job.log()
    status = job.archive.status_json()
    assert (status["state"], status["exit_code"], status["steps"]) == ("ENDING", 3, 0)
    assert status["reason"] == "the trainer ended with exit code 3"
    assert (status["failure"]["kind"], status["failure"]["lines"][-1]) == ("unknown", "Traceback: no such thing")


def test_a_trainer_that_is_killed(job: Setup) -> None:
    code, _output = job.run("killed")
    assert code == 128 + signal.SIGKILL
    status = job.archive.status_json()
    assert (status["state"], status["exit_code"]) == ("ENDING", -signal.SIGKILL)
    assert status["failure"]["kind"] == "killed"
    # The steward decides what follows.
    assert "attempts" not in status


def test_a_trainer_that_did_nothing_has_failed(job: Setup) -> None:
    code, _output = job.run("idle")
    assert code == 1
    status = job.archive.status_json()
    assert (status["state"], status["steps"], status["failure"]["kind"]) == ("FAILED", 0, "data")
    assert status["reason"] == "the trainer ended without an error and without any step, at step 0 of unknown"


# --- Attempts and secrets ---------------------------------------------------------------------------------------------


def test_another_attempt(job: Setup) -> None:
    job.policy = {"retries": 1}
    job.run("killed")
    attempts.record_end(job.archive, "FAILED", failures.failure("killed", "as the steward decides"))
    assert job.archive.status_json()["state"] == "RETRYING"
    first = job.archive.status_json()["started_at"]
    job.archive.set_status("SUBMITTED", attempt=2, resumed_from_step=1)
    job.archive.write_json("config/attempt-2.json", {"overrides": ["mode=ok", "resumed=yes"]})
    (job.archive.path / "config" / "versions.json").unlink()
    code, output = job.run("killed", attempt=2)
    assert code == 0
    assert output.startswith("ARGUS_VERL_ATTEMPT=2\nMVP_PRECHECK_VERL_FILE=")
    assert "overrides ['mode=ok', 'resumed=yes']\n" in output
    assert job.log().endswith(output)
    status = job.archive.status_json()
    assert (status["state"], status["started_at"]) == ("SUCCEEDED", first)
    assert [(ended["attempt"], ended["state"], ended["resumed_from"]) for ended in status["attempts"]] == [
        (1, "FAILED", None),
        (2, "SUCCEEDED", 1),
    ]
    assert (job.archive.path / "logs" / "metrics-2.jsonl").exists()
    # The first attempt has recorded the versions.
    assert not (job.archive.path / "config" / "versions.json").exists()


@pytest.mark.parametrize(("steps", "state"), [(2, "SUCCEEDED"), (3, "FAILED")])
def test_an_attempt_that_resumes_from_the_last_checkpoint_has_nothing_to_do(job: Setup, steps: int, state: str) -> None:
    job.policy = {"retries": 1}
    job.archive.driver_log.write_text(f"Total training steps: {steps}\n")
    job.archive.set_status("SUBMITTED", attempt=2, resumed_from_step=2)
    job.archive.write_json("config/attempt-2.json", {"overrides": ["mode=idle"]})
    job.run("idle", attempt=2)
    status = job.archive.status_json()
    assert (status["state"], status["steps"], status["attempt_steps"]) == (state, 2, 0)


@pytest.mark.parametrize(("attempt", "left"), [(1, [1, 2, 3, 4]), (2, [3, 4])])
def test_the_checkpoints_of_earlier_attempts_count(job: Setup, attempt: int, left: list[int]) -> None:
    """verl itself looks after those of one attempt."""
    directory = job.archive.path / "checkpoints"
    for step in (1, 2):
        (directory / f"global_step_{step}" / "dist_ckpt").mkdir(parents=True)
    (directory / "latest_checkpointed_iteration.txt").write_text("2")
    job.policy = {"workload": "sft"}
    job.archive.set_status("SUBMITTED", attempt=attempt)
    overrides = ["mode=saves", "trainer.max_ckpt_to_keep=2"]
    job.archive.write_json(f"config/attempt-{attempt}.json", {"overrides": overrides})
    assert job.run("saves", attempt=attempt)[0] == 0
    assert sorted(path.name for path in directory.glob("global_*")) == [f"global_step_{step}" for step in left]


def test_secrets_reach_the_trainer_and_no_log(job: Setup) -> None:
    redact.store(job.archive.path, {"HF_TOKEN": "hf_secret"})
    _code, output = job.run("secret")
    assert "it is [secret] and [secret] of 9\n" in output
    assert job.log() == output
    for path in job.archive.path.rglob("*"):
        assert path.is_dir() or "launcher" in path.parts or b"hf_secret" not in path.read_bytes()


def test_a_key_of_several_lines_is_in_no_log(job: Setup) -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg+q/hkiG9w\nAQEFAASCBKcwggSj\n-----END PRIVATE KEY-----\n"
    redact.store(job.archive.path, {"KEY": key, "JSON": json.dumps({"key": key})})
    code, output = job.run("environment")
    assert code == 4
    assert job.log() == output
    for part in ("PRIVATE", "MIIEvQ", "AQEFAAS", "hkiG9w"):
        assert part not in output
    # Also in the reason, the events and the evidence.
    for path in job.archive.path.rglob("*"):
        assert path.is_dir() or "launcher" in path.parts or b"MIIEvQ" not in path.read_bytes()
    # What the end of the output has cut off.
    assert output.endswith("it begins with [secret]")


def test_the_trainer_leaves_no_core_and_files_for_the_group_only(job: Setup) -> None:
    _code, output = job.run("limits")
    assert "core (0, 0) mask 0o27\n" in output
    for path in (job.archive.driver_log, job.archive.path / "config" / "versions.json"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert stat.S_IMODE((job.archive.path / "checkpoints" / "global_step_1").stat().st_mode) == 0o750


def test_a_flood_goes_to_the_archive_only(job: Setup) -> None:
    job.change("RAY_LOG_BYTES", 100_000)
    _code, output = job.run("flood")
    assert job.log().count("x" * 90) == 20000
    *shown, last = output.splitlines(keepends=True)
    assert last == f"[the rest of this log is in {job.archive.driver_log}]\n"
    assert 99_800 < len("".join(shown)) <= 100_000
    assert job.log().startswith("".join(shown))


# --- The watch --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "kind", "reason"),
    [
        ({"deadline": 0.1}, "deadline", "the job exceeded its deadline of 0.1 s"),
        ({"stall_timeout": 0.1, "on_stall": "stop"}, "stalled", r"no step and no log line for \d s, at step 2"),
    ],
)
def test_a_trainer_that_is_ended_by_its_launcher(job: Setup, policy: dict[str, Any], kind: str, reason: str) -> None:
    job.policy = policy
    job.archive.set_status("SUBMITTED", submitted_at=time.time())
    job.change("WATCH_SECONDS", 0.3)
    code, output = job.run("wait")
    assert code == 128 + signal.SIGTERM
    status = job.archive.status_json()
    assert (status["state"], status["failure"]["kind"]) == ("FAILED", kind)
    assert re.fullmatch(reason, status["reason"])
    assert f"The launcher ends the job: {status['reason']}\n" in output
    assert all_end(*pids(job.log()))
    assert {entry["moment"] for entry in job.index()} == {"stall" if kind == "stalled" else kind}
    assert job.archive.read_mapping("heartbeat.json")["step"] == 2


# --- Its end ----------------------------------------------------------------------------------------------------------


def test_stop_ends_the_trainer_and_all_its_children(job: Setup) -> None:
    process = job.start("wait")
    wait_for(lambda: "child\n" in job.log())
    trainer, child = pids(job.log())
    assert alive(trainer)
    assert alive(child)
    stopped_at = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    # Well before STOP_SECONDS, which is for a trainer that is deaf.
    assert time.monotonic() - stopped_at < 8
    assert process.returncode == 128 + signal.SIGTERM
    assert all_end(trainer, child)
    status = job.archive.status_json()
    assert (status["state"], status["exit_code"], status["steps"]) == ("STOPPED", -signal.SIGTERM, 2)
    assert status["reason"].startswith("stopped with signal 15, not by stop.yml")
    assert job.has_ended()


def test_a_trainer_that_ignores_sigterm_is_killed(job: Setup) -> None:
    job.change("STOP_SECONDS", 0.5)
    process = job.start("deaf")
    wait_for(lambda: "deaf\n" in job.log().splitlines(keepends=True) and "child\n" in job.log())
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGKILL
    assert all_end(*pids(job.log()))
    status = job.archive.status_json()
    assert (status["state"], status["exit_code"]) == ("STOPPED", -signal.SIGKILL)


def test_a_stop_during_the_precheck(job: Setup) -> None:
    mark = job.cwd / "checking"
    (job.code_path / "sitecustomize.py").write_text(
        f"import pathlib, sys, time\nif '-c' in sys.orig_argv:\n"
        f"    pathlib.Path({str(mark)!r}).touch()\n    time.sleep(0.4)\n"
    )
    process = job.start("wait")
    wait_for(mark.exists)
    process.send_signal(signal.SIGTERM)
    output, _errors = process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert b"overrides" not in output, "the trainer was started"
    assert job.archive.status_json()["state"] == "STOPPED"
    assert job.has_ended()


def test_a_command_with_commands_before_and_after_it(job: Setup) -> None:
    output = job.archive.path / "output"
    write = 'echo "$@" > result; echo $KEY; exit 3'
    job.policy = {"code_path": "", "directory": str(output), "command": ["/bin/sh", "-c", write, "x", "a", "b c"]}
    job.policy |= {"before": ["echo first > begun"], "after": ["/bin/cat begun result"]}
    code, _output = job.run("none")
    assert code == 3
    assert (output / "result").read_text() == "a b c\n"
    assert "first\na b c\n" in job.log()
    assert job.archive.status_json()["state"] in ("ENDING", "FAILED")


@pytest.mark.parametrize(
    ("before", "command", "state"), [([], "true", "SUCCEEDED"), (["exit 4"], "touch ran", "ENDING")]
)
def test_the_end_of_a_command(job: Setup, before: list[str], command: str, state: str) -> None:
    output = job.archive.path / "output"
    job.policy = {"code_path": "", "directory": str(output), "command": ["/bin/sh", "-c", command], "before": before}
    code, _output = job.run("none")
    assert code == (4 if before else 0)
    assert job.archive.status_json()["state"] == state
    assert not (output / "ran").exists()
    assert ("exit 4" in job.archive.status_json().get("reason", "")) == bool(before)


def test_nothing_follows_a_command_that_ends_well_when_it_is_stopped(job: Setup) -> None:
    output = job.archive.path / "output"
    job.policy = {"code_path": "", "directory": str(output), "command": ["/bin/sh", "-c", "/bin/touch ran"]}
    job.policy |= {"before": ["trap 'exit 0' TERM; echo begun; while :; do :; done", "/bin/touch next"]}
    process = job.start("none")
    wait_for(lambda: "\nbegun" in job.log())
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert job.archive.status_json()["state"] == "STOPPED"
    assert not list(output.iterdir())


def test_a_server_is_running_once_it_answers(job: Setup) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = ["-m", "http.server", "--bind", "127.0.0.1", str(port)]
    job.policy = {"code_path": "", "directory": str(job.archive.path / "output"), "command": [sys.executable, *serve]}
    job.policy |= {"ready_port": port, "before": ["/bin/sleep 1"]}
    job.change("WATCH_SECONDS", 0.1)
    job.archive.write_heartbeat("steward.json", time=0, address="127.0.0.1")
    process = job.start("none")
    waiting = wait_for(job.archive.status_json)
    assert (waiting["state"], waiting["address"], bool(waiting["reason"])) == ("SUBMITTED", "", True)
    wait_for(lambda: job.archive.status_json()["state"] == "RUNNING")
    assert job.archive.status_json()["address"] == f"http://127.0.0.1:{port}"
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert job.archive.status_json()["state"] == "STOPPED"


def test_a_job_that_fails_after_its_server(job: Setup) -> None:
    server = Archive(job.archive.path.with_name("judge"))
    server.reserve()
    server.set_status("FAILED")
    job.policy = {"env_from": {"JUDGE_URL": "judge"}}
    job.run("fail")
    status = job.archive.status_json()
    assert (status["state"], status["failure"]["kind"]) == ("FAILED", "dependency")


def test_a_program_that_cannot_be_started(job: Setup) -> None:
    job.policy = {"code_path": "", "directory": str(job.archive.path / "output"), "command": ["/missing"]}
    assert job.run("none")[0] == 127


def test_a_stop_while_the_trainer_is_being_started(job: Setup) -> None:
    job.write_plan("wait")
    launcher = Launcher(job.archive)
    launcher.stopped_by = signal.SIGTERM
    assert launcher.train({"PATH": str(job.path), "PYTHONPATH": str(job.code_path)}) == -signal.SIGTERM


def test_children_that_outlive_the_trainer_are_ended(job: Setup) -> None:
    code, _output = job.run("leaves")
    assert code == 0
    assert all_end(*pids(job.log()))
    assert job.archive.status_json()["state"] == "SUCCEEDED"


def test_a_process_that_has_left_does_not_hold_the_job(job: Setup) -> None:
    """In a session of its own it cannot be found, and it keeps the trainer's output open."""
    job.change("PUMP_SECONDS", 0.5)
    process = job.start("detaches")
    try:
        wait_for(lambda: job.archive.status_json().get("state") == "SUCCEEDED")
        # Its own copy of our pipe is the trainer's, so this end comes as well.
        assert process.wait(timeout=30) == 0
    finally:
        os.kill(pids(job.log())[1], signal.SIGKILL)


def test_a_log_that_cannot_be_written_does_not_hold_the_trainer(job: Setup) -> None:
    """As with a full shared root; the trainer writes more than a pipe holds."""
    job.archive.driver_log.symlink_to("/dev/full")
    code, output = job.run("much")
    assert code == 0
    assert output.endswith(f"{'x' * 300_000}trained\n")
    assert job.archive.status_json()["state"] == "SUCCEEDED"
