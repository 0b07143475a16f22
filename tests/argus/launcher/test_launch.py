"""The launcher as a job runs it: from the copy in its archive, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from launcher_job import Setup
from real_processes import alive, until

from argus.archive import failures
from argus.archive.archive import Archive
from argus.hooks import worker_secrets
from argus.launcher import driver_log
from argus.launcher.launch import Launcher
from argus.queue import attempts


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Setup]:
    made = Setup(tmp_path)
    yield made
    for process in made.started:
        # kill would leave the processes that it started.
        process.terminate()
        process.communicate(timeout=30)


def pids(log: str) -> list[int]:
    (line,) = (line for line in log.splitlines() if line.startswith("pids"))
    return [int(pid) for pid in line.split()[1:]]


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)


def all_end(*running: int) -> None:
    """Wait until killed processes have ended: on a busy machine, the kernel takes a moment."""
    until(lambda: not any(map(alive, running)))


def test_a_job_that_succeeds(job: Setup) -> None:
    before = time.time()
    code, output = job.run("ok")
    assert code == 0
    assert output == job.log()
    assert output.splitlines()[2:] == [
        """overrides ['mode=ok', "note='a, b'"]""",
        f"deterministic 1 path {job.code_path}",
        # The trainer leaves no core, and files for the group only.
        "core (0, 0) mask 0o27",
        "trained",
    ]
    assert stat.S_IMODE(job.archive.driver_log.stat().st_mode) == 0o640
    status = job.archive.status_json()
    assert before < status["started_at"] < status["ended_at"] < time.time()
    assert (status["state"], status["exit_code"], status["steps"]) == ("SUCCEEDED", 0, 2)
    assert status["driver"]["pid"] == job.started[0].pid
    assert (status["reason"], status["failure"]) == ("", None)
    assert (job.events(), job.index()) == (["RUNNING", "SUCCEEDED"], [])
    versions = job.archive.read_mapping("config/versions.json")
    assert versions["python"] == ".".join(map(str, sys.version_info[:3]))


def test_another_attempt(job: Setup) -> None:
    job.policy = {"retries": 1}
    code, _output = job.run("killed")
    assert code == 128 + signal.SIGKILL
    status = job.archive.status_json()
    # The steward decides what follows.
    assert (status["state"], status["failure"]["kind"], "attempts" in status) == ("ENDING", "killed", False)
    attempts.record_end(job.archive, "FAILED", failures.failure("killed", "as the steward decides"))
    assert job.archive.status_json()["state"] == "RETRYING"
    first = job.archive.status_json()["started_at"]
    job.archive.set_status("SUBMITTED", attempt=2)
    job.archive.write_json("config/attempt-2.json", {"overrides": ["mode=ok", "resumed=yes"]})
    (job.archive.path / "config" / "versions.json").unlink()
    code, output = job.run("killed", attempt=2)
    assert code == 0
    assert output.startswith("ARGUS_VERL_ATTEMPT=2\n") and "overrides ['mode=ok', 'resumed=yes']\n" in output
    assert job.log().endswith(output)
    status = job.archive.status_json()
    assert (status["state"], status["started_at"]) == ("SUCCEEDED", first)
    assert [(ended["attempt"], ended["state"]) for ended in status["attempts"]] == [(1, "FAILED"), (2, "SUCCEEDED")]
    # The first attempt has recorded the versions.
    assert not (job.archive.path / "config" / "versions.json").exists()


def test_the_checkpoints_of_earlier_attempts_count(job: Setup) -> None:
    """verl itself looks after those of one attempt."""
    directory = job.archive.path / "checkpoints"
    for step in (1, 2):
        (directory / f"global_step_{step}" / "dist_ckpt").mkdir(parents=True)
    (directory / "latest_checkpointed_iteration.txt").write_text("2")
    job.policy = {"workload": "sft"}
    job.archive.set_status("SUBMITTED", attempt=2)
    overrides = ["mode=saves", "trainer.max_ckpt_to_keep=2"]
    job.archive.write_json("config/attempt-2.json", {"overrides": overrides})
    assert job.run("saves", attempt=2)[0] == 0
    assert sorted(path.name for path in directory.glob("global_*")) == ["global_step_3", "global_step_4"]


def test_a_key_of_several_lines_is_in_no_log(job: Setup) -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg+q/hkiG9w\nAQEFAASCBKcwggSj\n-----END PRIVATE KEY-----\n"
    worker_secrets.store(job.archive.path, {"KEY": key, "JSON": json.dumps({"key": key})})
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


def test_a_trainer_that_is_ended_by_its_launcher(job: Setup) -> None:
    job.policy = {"stall_timeout": 0.1, "on_stall": "stop"}
    job.change("WATCH_INTERVAL_SECONDS", 0.3)
    code, output = job.run("wait")
    assert code == 128 + signal.SIGTERM
    status = job.archive.status_json()
    assert (status["state"], status["failure"]["kind"]) == ("FAILED", "stalled")
    assert f"The launcher ends the job: {status['reason']}\n" in output
    all_end(*pids(job.log()))
    assert {entry["moment"] for entry in job.index()} == {"stall"}
    assert job.archive.read_mapping("heartbeat.json")["step"] == 2


def test_stop_ends_the_trainer_and_all_its_children(job: Setup) -> None:
    process = job.start("wait")
    until(lambda: "child\n" in job.log())
    running = pids(job.log())
    assert all(map(alive, running))
    stopped_at = time.monotonic()
    stop(process)
    # Well before STOP_SECONDS, which is for a trainer that is deaf.
    assert time.monotonic() - stopped_at < 8
    assert process.returncode == 128 + signal.SIGTERM
    all_end(*running)
    status = job.archive.status_json()
    assert (status["state"], status["exit_code"], status["steps"]) == ("STOPPED", -signal.SIGTERM, 2)
    assert job.has_ended()


def test_a_trainer_that_ignores_sigterm_is_killed(job: Setup) -> None:
    job.change("SIGTERM_GRACE_SECONDS", 0.5, "program_runner")
    process = job.start("deaf")
    until(lambda: "deaf\n" in job.log().splitlines(keepends=True) and "child\n" in job.log())
    stop(process)
    assert process.returncode == 128 + signal.SIGKILL
    all_end(*pids(job.log()))
    status = job.archive.status_json()
    assert (status["state"], status["exit_code"]) == ("STOPPED", -signal.SIGKILL)


def test_a_command_with_commands_before_and_after_it(job: Setup) -> None:
    output = job.archive.path / "output"
    write = 'echo "$@" > result; echo $KEY; exit 3'
    job.policy = {"code_path": "", "directory": str(output), "command": ["/bin/sh", "-c", write, "x", "a", "b c"]}
    job.policy |= {"before": ["echo first > begun"], "after": ["/bin/cat begun result"]}
    code, _output = job.run("none")
    assert code == 3
    assert "first\na b c\n" in job.log()
    assert job.archive.status_json()["state"] in ("ENDING", "FAILED")
    job.policy["before"] = ["/bin/rm result; exit 4"]
    assert job.run("none")[0] == 4
    assert not (output / "result").exists() and "exit 4" in job.archive.status_json()["reason"]
    job.policy |= {"before": [], "command": ["/missing"]}
    assert job.run("none")[0] == 127


def test_nothing_follows_a_command_that_ends_well_when_it_is_stopped(job: Setup) -> None:
    output = job.archive.path / "output"
    job.policy = {"code_path": "", "directory": str(output), "command": ["/bin/touch", "ran"]}
    job.policy |= {"before": ["trap 'exit 0' TERM; echo begun; while :; do :; done", "/bin/touch next"]}
    process = job.start("none")
    until(lambda: "\nbegun" in job.log())
    stop(process)
    assert job.archive.status_json()["state"] == "STOPPED"
    assert not list(output.iterdir())


def test_a_server_is_running_once_it_answers(job: Setup) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    serve = ["-m", "http.server", "--bind", "127.0.0.1", str(port)]
    job.policy = {"code_path": "", "directory": str(job.archive.path / "output"), "command": [sys.executable, *serve]}
    job.policy |= {"ready_port": port, "before": ["/bin/sleep 1"]}
    job.change("WATCH_INTERVAL_SECONDS", 0.1)
    job.archive.write_heartbeat("steward.json", time=0, address="127.0.0.1")
    process = job.start("none")
    until(job.archive.status_json)
    waiting = job.archive.status_json()
    assert (waiting["state"], waiting["address"], bool(waiting["reason"])) == ("SUBMITTED", "", True)
    until(lambda: job.archive.status_json()["state"] == "RUNNING")
    assert job.archive.status_json()["address"] == f"http://127.0.0.1:{port}"
    stop(process)
    assert job.archive.status_json()["state"] == "STOPPED"


def test_a_job_that_fails_after_its_server(job: Setup) -> None:
    server = Archive(job.archive.path.with_name("judge"))
    server.reserve()
    server.set_status("FAILED")
    job.policy = {"env_from": {"JUDGE_URL": "judge"}}
    job.run("fail")
    status = job.archive.status_json()
    assert (status["state"], status["failure"]["kind"]) == ("FAILED", "dependency")


def test_a_stop_while_the_trainer_is_being_started(job: Setup) -> None:
    job.write_plan("wait")
    launcher = Launcher(job.archive)
    launcher.received_signal = signal.SIGTERM
    assert launcher.run_programs({"PATH": str(job.path), "PYTHONPATH": str(job.code_path)}) == -signal.SIGTERM


def test_children_that_outlive_the_trainer_are_ended(job: Setup) -> None:
    code, _output = job.run("leaves")
    assert code == 0
    all_end(*pids(job.log()))
    assert job.archive.status_json()["state"] == "SUCCEEDED"


def test_a_process_that_has_left_does_not_hold_the_job(job: Setup) -> None:
    """In a session of its own it cannot be found, and it keeps the trainer's output open."""
    job.change("OUTPUT_DRAIN_TIMEOUT_SECONDS", 0.5, "program_runner")
    process = job.start("detaches")
    try:
        until(lambda: job.archive.status_json().get("state") == "SUCCEEDED")
        # Its own copy of our pipe is the trainer's, so this end comes as well.
        assert process.wait(timeout=30) == 0
    finally:
        os.kill(pids(job.log())[1], signal.SIGKILL)


def test_an_archive_that_cannot_be_written_does_not_hide_the_failure(job: Setup) -> None:
    process = job.start("waits", GO=str(job.cwd / "go"), LINES="10")
    until(lambda: "pids" in job.log())
    (job.archive.path / "status.json").unlink()
    (job.archive.path / "status.json").mkdir()
    (job.cwd / "go").touch()
    output, _errors = process.communicate(timeout=30)
    end = driver_log.parse_end_line(output.decode())
    assert process.returncode == 3 and end and end.kind == "config"
