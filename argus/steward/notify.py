# SPDX-License-Identifier: Apache-2.0
"""Notifies people of a job's events: its end, a retry, a stall, a long wait, or a head that came back.

The variable `job_notify` of the inventory is a command, which gets an event as JSON on its standard input, or an HTTP
address, which gets it by POST. Each event is sent once, in a thread, so that the steward does not wait for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.error import URLError

from ..archive.archive import Archive, Heartbeat
from ..archive.status import JobState
from ..common.identity import cluster_name
from ..common.text import duration, printable
from ..jobs.report import warning_count_text
from .decisions import Observations

# The limit for sending one event. The steward waits that long for the last events of a job that has ended.
SEND_TIMEOUT_SECONDS = 10.0
# The prefix of the registry's files with the events that were sent for a job. No id of a job begins with a dot.
SENT_FILE_PREFIX = ".told-"
MAX_TEXT_CHARS = 500


@dataclass(frozen=True)
class Notification:
    """One event of a job. All fields but the key are sent."""

    key: str  # unique among the events of the job
    event: str  # ended, retried, stalled, waits or head_returned
    submission_id: str
    cluster: str
    state: str
    attempt: int
    kind: str  # the FailureKind of the last failure, or ""
    text: str  # a sentence for people


def notifications(
    submission_id: str, seen: Observations, heartbeat: Heartbeat, away_seconds: float | None
) -> Iterator[Notification]:
    """The events of a job now, including those already sent. away_seconds: of a head that has just come back."""
    status, cluster = seen.status, cluster_name()
    failure_kind = status.failure.kind if status.failure else ""
    why = f" ({failure_kind})" if failure_kind else ""

    def notification(event: str, key: str, text: str) -> Notification:
        line = printable(f"{submission_id} on {cluster}: {text}", lines=False)[:MAX_TEXT_CHARS]
        return Notification(key, event, submission_id, cluster, str(status.state), status.attempt, failure_kind, line)

    if status.state and status.state.ended:
        warned = f", with {warning_count_text(status.warnings)}: {status.warnings[0].text}" if status.warnings else ""
        text = f"{status.state}{why}{f': {status.reason}' if status.reason else ''}{warned}"
        yield notification("ended", "ended", text)
    if status.state is JobState.RETRYING:
        text = f"attempt {status.attempt} failed{why}: {status.reason}; another one follows"
        yield notification("retried", f"retried-{status.attempt}", text)
    if status.state is JobState.RUNNING and heartbeat.stalled:
        yield notification("stalled", f"stalled-{status.attempt}", f"it stalls: {heartbeat.stalled}")
    patience, waited = seen.plan.queue_patience, seen.elapsed(status.queued_at)
    if status.state is JobState.QUEUED and patience and waited > patience and not seen.unmet_start_condition:
        problem = seen.head.capacity_problem if seen.head else "the head does not answer"
        yield notification("waits", "waits", f"it has waited for {duration(waited)}: {problem}")
    if away_seconds is not None:
        yield notification("head_returned", f"head-{int(seen.now)}", f"the head was away for {duration(away_seconds)}")


class Notifier:
    """Sends the events of one job. target: `job_notify`, a command or an address, or "". registry: its directory."""

    def __init__(self, target: str, archive: Archive, registry: Path) -> None:
        self.target = target
        self.archive = archive
        self.file = registry / f"{SENT_FILE_PREFIX}{archive.submission_id}"
        self.sent: set[str] = set()
        with contextlib.suppress(OSError):
            self.sent = set(self.file.read_text(encoding="utf-8").split())
        self.threads: list[threading.Thread] = []

    def notify(self, notification: Notification) -> None:
        if not self.target or notification.key in self.sent:
            return
        self.sent.add(notification.key)
        # Recorded before sending: an event is better lost than sent twice.
        with contextlib.suppress(OSError):
            self.file.write_text("\n".join(sorted(self.sent)), encoding="utf-8")
        thread = threading.Thread(target=self._deliver, args=(notification,), daemon=True)
        self.threads = [running for running in self.threads if running.is_alive()] + [thread]
        thread.start()

    def _deliver(self, notification: Notification) -> None:
        values = {name: value for name, value in asdict(notification).items() if name != "key"}
        try:
            if self.target.startswith(("http://", "https://")):
                post_event(self.target, values)
            else:
                run_command(self.target, values)
        # The messages of these errors may contain secrets of the command or address.
        except subprocess.TimeoutExpired:
            self._record_failure(notification, f"it did not end within {SEND_TIMEOUT_SECONDS:g} s")
        except subprocess.CalledProcessError as error:
            self._record_failure(notification, f"it ended with {error.returncode}")
        except URLError as error:
            self._record_failure(notification, str(getattr(error, "code", "") or error.reason))
        except Exception as error:
            self._record_failure(notification, type(error).__name__)

    def _record_failure(self, notification: Notification, reason: str) -> None:
        with contextlib.suppress(OSError):
            self.archive.event("NOT_TOLD", what=notification.event, reason=reason)

    def finish(self) -> None:
        """Wait until all events are sent, and remove the file of the job, which has ended."""
        for thread in self.threads:
            thread.join(SEND_TIMEOUT_SECONDS)
        with contextlib.suppress(OSError):
            self.file.unlink(missing_ok=True)


def post_event(address: str, values: Mapping[str, object]) -> None:
    body, headers = json.dumps(values).encode(), {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(address, body, headers), timeout=SEND_TIMEOUT_SECONDS):  # noqa: S310
        pass


def run_command(command: str, values: Mapping[str, object]) -> None:
    variables = {f"ARGUS_{name.upper()}": str(value) for name, value in values.items()}
    with subprocess.Popen(
        ["sh", "-c", command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **variables},
        start_new_session=True,
    ) as process:
        try:
            process.communicate(json.dumps(values).encode(), SEND_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, "job_notify")
