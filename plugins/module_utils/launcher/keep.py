# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keeper of a job: a process on the head that sees to it from its archive's first moment to its last.

It outlives attempts, their drivers and the nodes they ran on. What is to be done next is decided by a pure function
from what is seen; the keeper looks and does it. It needs the standard library only; where Ray's own client is needed,
a process of its own does that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import attempts, evidence, failures, redact
from .archive import ENDED, ENDING, FAILED, QUEUED, RETRYING, RUNNING, SIGN, STOPPED, SUBMITTED, Archive, now
from .plan import Plan
from .ray_api import RayApiError, RayHead, does_not_fit

# How often the head is asked; the archive is looked at more often.
LOOK_SECONDS = 2.0
LOOK_SECONDS_RUNNING = 5.0
GLANCE_SECONDS = 0.5
# Ray has a job within a second of its submission.
UNKNOWN_SECONDS = 60.0
# A launcher that has ended by itself writes its end before Ray notices.
GRACE_SECONDS = 10.0
# A lost machine may wait for somebody's morning; a job that waits for it takes nothing.
LOST_RESOURCES_SECONDS = 86_400.0
# A driver that fits is started within seconds; before it, another job may have been faster.
PENDING_SECONDS = 600.0
# The launcher ends its job at the deadline; beyond this it cannot.
OVERDUE_SECONDS = 180.0
PERIODIC_SECONDS = 300.0
# Connecting, asking the head, and asking or sweeping all nodes take at most 20 and three times 45 s.
EVIDENCE_SECONDS = 300.0
# What Ray was told and has not done is told again.
STOP_AGAIN_SECONDS = 60.0
# An API that answers, and does not know a job that it had: it was started again.
FORGOTTEN_SECONDS = 30.0

# verl mostly waits for ever for what was on a lost node: how long it may take to go on or to fail by itself.
LOST_NODE_SECONDS = 30.0
# What the loss of a node looks like as long as nobody knows of it.
AMBIGUOUS = ("communication", "killed", "unknown")
# Ray notices a lost node within 32 s (health_check_initial_delay_ms, _period_ms, _failure_threshold).
NOTICE_SECONDS = 45.0

WAIT, SUBMIT, CANCEL, FAIL, STOP_ATTEMPT, FINISH = "wait", "submit", "cancel", "fail", "stop_attempt", "finish"


@dataclass(frozen=True)
class View:
    """What is seen of a job at a moment."""

    now: float
    status: Mapping[str, Any]
    plan: Plan
    # Ray's record of the current attempt; None: it knows none. Without an answer of the head, `answered` is False.
    job: Mapping[str, Any] | None
    answered: bool
    # Since when it is as it is now.
    unknown_since: float | None = None
    ended_since: float | None = None
    stop_requested: bool = False
    # For what the keeper has ended the attempt.
    verdict: failures.Failure | None = None
    head_node_id: str = ""
    driver_alive: bool = True
    # A node on which the attempt had processes and that is dead, and since when it has not made a step since.
    lost_node: str = ""
    lost_since: float | None = None
    # Why the next attempt has no place; nothing when it has.
    no_place: str = ""


@dataclass(frozen=True)
class Action:
    """What is to be done next, and for what reason."""

    kind: str
    failure: failures.Failure | None = None


def decide(view: View) -> Action:
    """The next step of a job's life."""
    state = view.status.get("state")
    if state in ENDED:
        return Action(FINISH)
    if state in (QUEUED, RETRYING):
        return decide_waiting(view, str(state))
    if state == ENDING:
        return decide_ending(view)
    if not view.answered:
        return Action(WAIT)
    if view.job is None:
        return decide_unknown(view)
    ray_state = view.job["status"]
    if ray_state in ENDED:
        return decide_lost(view)
    if view.head_node_id and view.job.get("driver_node_id") == view.head_node_id:
        return Action(STOP_ATTEMPT, failures.failure("config", "its driver was started on the head"))
    if over_deadline(view, 0 if ray_state == "PENDING" else OVERDUE_SECONDS):
        return Action(CANCEL if ray_state == "PENDING" else STOP_ATTEMPT, deadline(view))
    if view.lost_node and view.lost_since and view.now - view.lost_since > LOST_NODE_SECONDS:
        reason = f"node {view.lost_node} was lost, and the trainer neither went on nor failed"
        return Action(STOP_ATTEMPT, failures.failure("node_lost", reason))
    if ray_state == "PENDING":
        waited = view.now - view.status["attempt_submitted_at"]
        if view.stop_requested:
            return Action(CANCEL, failures.failure("stopped", "stopped while it waited for its driver to be started"))
        if waited > PENDING_SECONDS:
            reason = (
                f"its driver was not started within {waited:.0f} s: {view.job.get('message') or 'no reason is given'}"
            )
            return Action(CANCEL, failures.failure("no_resources", reason))
    return Action(WAIT)


def decide_waiting(view: View, state: str) -> Action:
    """Of a job that has no attempt at the moment."""
    if view.stop_requested:
        return Action(FAIL, failures.failure("stopped", "stopped while it waited for resources"))
    if over_deadline(view, 0):
        return Action(FAIL, deadline(view))
    if view.answered and not view.no_place:
        return Action(SUBMIT)
    since = view.status["queued_at"] if state == QUEUED else view.status["ended_at"]
    limit = view.plan.wait_for_resources or LOST_RESOURCES_SECONDS
    if view.now - since > limit:
        return Action(FAIL, failures.failure("no_resources", f"waited {limit:g} s: {view.no_place or 'no answer'}"))
    return Action(WAIT)


def decide_ending(view: View) -> Action:
    """Of an attempt that has failed, perhaps for a lost node that nobody knows of yet."""
    if view.stop_requested:
        return Action(FAIL, failures.failure("stopped", "stopped after its trainer had failed"))
    seen = attempts.failure_of(view.status["failure"])
    if view.lost_node:
        lost = failures.failure("node_lost", f"node {view.lost_node} was lost")
        return Action(FAIL, dataclasses.replace(lost, lines=seen.lines if seen else ()))
    return Action(WAIT) if view.now - view.status["ended_at"] < NOTICE_SECONDS else Action(FAIL, seen)


def decide_unknown(view: View) -> Action:
    """Of an attempt that Ray does not know: not yet, never, or no longer."""
    if view.unknown_since is None or view.status.get("state") == SUBMITTED:
        if view.now - view.status.get("attempt_submitted_at", view.now) < UNKNOWN_SECONDS:
            return Action(WAIT)
        return Action(FAIL, failures.failure("unknown", "Ray never got it: whoever submitted it was interrupted"))
    if view.now - view.unknown_since < FORGOTTEN_SECONDS:
        return Action(WAIT)
    return Action(FAIL, failures.failure("node_lost", "the head was started again, and has lost its jobs"))


def decide_lost(view: View) -> Action:
    """Of an attempt that has ended for Ray, and whose launcher has not said how."""
    if view.ended_since is None or view.now - view.ended_since < GRACE_SECONDS:
        return Action(WAIT)
    if view.verdict:
        return Action(FAIL, view.verdict)
    job = view.job or {}
    message = str(job.get("message") or "Ray gives no reason")
    if view.stop_requested or job["status"] == STOPPED:
        return Action(FAIL, failures.failure("stopped", message))
    if not view.driver_alive:
        return Action(FAIL, failures.failure("node_lost", f"the driver's node is gone: {message}"))
    # The node is there: what ended the launcher without a word was SIGKILL.
    found = failures.classify(message, job.get("driver_exit_code") or -signal.SIGKILL)
    if found.kind == "unknown":
        found = failures.failure("killed", f"its launcher was killed: {message}")
    return Action(FAIL, found)


def over_deadline(view: View, grace: float) -> bool:
    limit = view.plan.deadline
    return bool(limit) and view.now > view.status["submitted_at"] + limit + grace


def deadline(view: View) -> failures.Failure:
    return failures.failure("deadline", f"it took longer than its deadline of {view.plan.deadline:g} s")


# --- Doing it --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def taken(archive: Archive) -> Iterator[bool]:
    """Whether the job is ours to keep: nobody else on this host does as long as it is."""
    with (archive.path / ".keeper.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


def finish(archive: Archive, state: str) -> None:
    """The last that is done for an attempt: evidence, and nothing left behind; for a job, it is closed as well."""
    wait(archive.run_launcher("end"))
    close(archive, state)


def close(archive: Archive, state: str) -> None:
    """When the job has ended: its secrets are gone, and nothing is written any more."""
    if state in ENDED:
        redact.forget(archive.path)
        archive.close()
        # Where it is, somebody has to keep the job.
        (archive.path / SIGN).unlink(missing_ok=True)


def wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(EVIDENCE_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


class Keeper:
    """Keeps one job. There is one for a job at a time."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self.plan = archive.plan() or Plan()
        self.head = RayHead(self.plan.address, os.environ.get("RAY_AUTH_TOKEN_PATH", ""))
        self.unknown_since: float | None = None
        self.ended_since: float | None = None
        # Of one that runs already, another keeper knew before a head was started again.
        self.known = archive.status().get("state") == RUNNING
        self.next_stop = 0.0
        self.lost_since: float | None = None
        self.lost_at_step: int | None = None
        self.next_periodic = time.time() + PERIODIC_SECONDS
        self.started_evidence = 0
        self.finished = 0
        self.children: list[subprocess.Popen[bytes]] = []
        self.actions: dict[str, Callable[[failures.Failure | None], None]] = {
            SUBMIT: self.submit,
            CANCEL: self.cancel,
            FAIL: self.fail,
            STOP_ATTEMPT: self.stop_attempt,
        }

    def run(self) -> int:
        """Keep the job to its end; 0, or 1 when somebody else keeps it."""
        with taken(self.archive) as own:
            if not own:
                return 1
            self.archive.event("KEPT", host=socket.gethostname(), pid=os.getpid())
            self.evidence(evidence.SUBMIT)
            while True:
                try:
                    if self.step():
                        return 0
                    self.wait_for_change()
                except Exception:
                    # A shared root or a head that stands still, or whatever else, must not end the keeper.
                    self.complain()
                    time.sleep(LOOK_SECONDS)

    def complain(self) -> None:
        """Into the keeper's own log, of which there is none as long as all is well."""
        with contextlib.suppress(OSError), (self.archive.path / "logs" / "keeper.log").open("a") as log:
            log.write(f"{now()} {traceback.format_exc()}")

    def wait_for_change(self) -> None:
        state = self.archive.status().get("state")
        over = time.monotonic() + (LOOK_SECONDS_RUNNING if state == RUNNING else LOOK_SECONDS)
        while time.monotonic() < over and self.archive.status().get("state") == state:
            time.sleep(GLANCE_SECONDS)

    def step(self) -> bool:
        """Look once, and do what is to be done; True at the job's end."""
        self.archive.write_sign(SIGN, time=time.time(), host=socket.gethostname(), pid=os.getpid())
        view = self.look()
        if view.status.get("state") == RETRYING and self.finished < attempts.current(self.archive):
            # Before the next attempt, all is known of this one and nothing of it is left.
            self.finished = attempts.current(self.archive)
            self.wait_for_ray()
            finish(self.archive, RETRYING)
            return False
        action = decide(view)
        if action.kind == FINISH:
            self.wait_for_ray()
            finish(self.archive, str(view.status["state"]))
            return True
        if action.kind == WAIT:
            self.collect(view)
        else:
            self.actions[action.kind](action.failure)
        return False

    def look(self) -> View:
        now = time.time()
        status = self.archive.status()
        state = status.get("state")
        job, answered, no_place, head_node_id, driver_alive, lost_node = None, False, "", "", True, ""
        with contextlib.suppress(RayApiError, KeyError, TypeError):
            if state in (QUEUED, RETRYING):
                no_place = self.no_place()
            elif state not in ENDED:
                job = self.head.job(attempts.ray_id(self.archive.submission_id, attempts.current(self.archive)))
                nodes = self.head.nodes()
                head_node_id = next((node["node_id"] for node in nodes if node["is_head_node"]), "")
                alive = {node["node_id"] for node in nodes if node["state"] == "ALIVE"}
                driver_alive = not job or not job.get("driver_node_id") or job["driver_node_id"] in alive
                lost_node = self.lost_node(job, nodes, status)
            answered = True
        if answered:
            self.unknown_since = (self.unknown_since or now) if job is None and self.known else None
            self.ended_since = (self.ended_since or now) if job and job["status"] in ENDED else None
            self.known = self.known or job is not None
        return View(
            now=now,
            # The launcher may have written its end while Ray was asked.
            status=self.archive.status(),
            plan=self.plan,
            job=job,
            answered=answered,
            unknown_since=self.unknown_since,
            ended_since=self.ended_since,
            stop_requested=self.archive.stop_requested(),
            head_node_id=head_node_id,
            driver_alive=driver_alive,
            lost_node=lost_node,
            lost_since=self.lost_since,
            verdict=attempts.verdict(self.archive),
            no_place=no_place,
        )

    def lost_node(
        self, job: Mapping[str, Any] | None, nodes: Sequence[Mapping[str, Any]], status: Mapping[str, Any]
    ) -> str:
        """The name of a node of the current attempt that has died since its start, or nothing."""
        since = status.get("attempt_started_at") or time.time()
        dead = {node["node_id"]: node["node_name"] for node in nodes if node.get("end_time_ms", 0) > since * 1000}
        if not dead or not job or not job.get("job_id"):
            return ""
        actors = evidence.actors(self.head, detail=True)
        own = evidence.died_with(actors, job["job_id"], ended=status["state"] == ENDING) | {job.get("driver_node_id")}
        lost = ", ".join(name for node_id, name in dead.items() if node_id in own)
        step = (self.archive.read_json("heartbeat.json") or {}).get("step")
        if lost and (self.lost_since is None or step != self.lost_at_step):
            self.lost_since, self.lost_at_step = time.time(), step
        return lost

    def no_place(self) -> str:
        plan = self.plan
        cpus = plan.cpus_per_node
        other = attempts.other_queue(self.archive, self.head.jobs()) if plan.transfer_queue else ""
        if other:
            return other
        return does_not_fit(self.head.free(), plan.nnodes, plan.gpus_per_node, cpus, plan.entrypoint_num_cpus)

    def collect(self, view: View) -> None:
        """Evidence while nothing else is to be done."""
        attempt = attempts.current(self.archive)
        if view.status.get("state") == RUNNING and self.started_evidence < attempt:
            self.started_evidence = attempt
            self.evidence(evidence.START)
        elif view.now >= self.next_periodic:
            self.next_periodic = view.now + PERIODIC_SECONDS
            self.evidence(evidence.PERIODIC)

    def evidence(self, moment: str) -> None:
        """In the background: what hangs must not keep the keeper from its job."""
        process = self.archive.run_launcher("evidence", moment)
        # Reap it when it has ended, whenever that is.
        self.children = [child for child in [*self.children, process] if child.poll() is None]

    def submit(self, _failure: failures.Failure | None) -> None:
        """The next attempt."""
        status = self.archive.status()
        attempt = attempts.current(self.archive) + 1 if status["state"] == RETRYING else 1
        self.known, self.unknown_since, self.ended_since, self.lost_since = False, None, None, None
        self.in_ray("submit", str(attempt))

    def cancel(self, failure: failures.Failure | None) -> None:
        self.in_ray("cancel", str(attempts.current(self.archive)))
        self.fail(failure)

    def stop_attempt(self, failure: failures.Failure | None) -> None:
        """End it and say why; its launcher writes that down, or the next look finds it gone."""
        if failure and not attempts.verdict(self.archive):
            attempts.set_verdict(self.archive, failure)
        if time.time() >= self.next_stop:
            self.next_stop = time.time() + STOP_AGAIN_SECONDS
            self.in_ray("stop", str(attempts.current(self.archive)))

    def fail(self, failure: failures.Failure | None) -> None:
        """Write down the end of an attempt whose launcher cannot."""
        own = [entry["step"] for entry in self.archive.metrics()]
        state = STOPPED if failure and failure.kind == "stopped" else FAILED
        done = attempts.steps_done(self.archive, attempts.current(self.archive))
        details: dict[str, Any] = {"steps": max(own, default=0), "attempt_steps": done}
        attempts.record_end(self.archive, state, failure, **details)

    def in_ray(self, verb: str, attempt: str) -> None:
        """What needs Ray's client, in a process of its own; its complaints go to the keeper's log."""
        command = [
            sys.executable,
            str(self.archive.path / "config" / "launcher"),
            verb,
            str(self.archive.path),
            attempt,
        ]
        with (self.archive.path / "logs" / "keeper.log").open("ab") as log:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=120, check=False, cwd="/")

    def wait_for_ray(self) -> None:
        """Until Ray has noticed the end as well: the launcher itself is a process of the job."""
        deadline = time.monotonic() + GRACE_SECONDS
        ray_id = attempts.ray_id(self.archive.submission_id, attempts.current(self.archive))
        with contextlib.suppress(RayApiError):
            while time.monotonic() < deadline:
                job = self.head.job(ray_id)
                if job is None or job["status"] in ENDED:
                    return
                time.sleep(0.2)
