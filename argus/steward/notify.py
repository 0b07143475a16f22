# SPDX-License-Identifier: Apache-2.0
"""Notifies people about a job: `job_notify` of the inventory is called once for each event.

It is a command, which gets the event as JSON on its standard input, or an address, which gets it by POST. It runs
beside the steward, which does not wait for it while the job runs.
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
from .decisions import View

# For one event; a job that has ended waits for its last one.
CALL_TIMEOUT_SECONDS = 10.0
# In the registry, which only the head sees: the events of a job that were told. No id of a job begins with a dot.
SENT_FILE_PREFIX = ".told-"
MAX_TEXT_CHARS = 500


@dataclass(frozen=True)
class Notification:
    """A notification. key: unique among the events of the job. kind: the cause of a failure."""

    key: str
    event: str
    submission_id: str
    cluster: str
    state: str
    attempt: int
    kind: str
    text: str


def notifications(submission_id: str, view: View, heartbeat: Heartbeat, away: float | None) -> Iterator[Notification]:
    """The present events, including those already sent. away: seconds that a head was away, if just returned."""
    status, cluster = view.status, cluster_name()
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
    patience, waited = view.plan.queue_patience, view.elapsed(status.queued_at)
    if status.state is JobState.QUEUED and patience and waited > patience and not view.unmet_start_condition:
        problem = view.head.capacity_problem if view.head else "the head does not answer"
        yield notification("waits", "waits", f"it has waited for {duration(waited)}: {problem}")
    if away is not None:
        yield notification("head_returned", f"head-{int(view.now)}", f"the head was away for {duration(away)}")


class Notifier:
    """Tells the events of one job. target: a command or an address; "" is for none. registry: its directory."""

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
                post(self.target, values)
            else:
                run(self.target, values)
        # The messages of these errors may contain secrets of the command or address.
        except subprocess.TimeoutExpired:
            self._record_failure(notification, f"it did not end within {CALL_TIMEOUT_SECONDS:g} s")
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
        """Wait for running notifications, and forget the job, which has ended."""
        for thread in self.threads:
            thread.join(CALL_TIMEOUT_SECONDS)
        with contextlib.suppress(OSError):
            self.file.unlink(missing_ok=True)


def post(address: str, values: Mapping[str, object]) -> None:
    body, headers = json.dumps(values).encode(), {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(address, body, headers), timeout=CALL_TIMEOUT_SECONDS):  # noqa: S310
        pass


def run(command: str, values: Mapping[str, object]) -> None:
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
            process.communicate(json.dumps(values).encode(), CALL_TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, "job_notify")
