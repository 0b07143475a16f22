# SPDX-License-Identifier: GPL-3.0-or-later
"""The jobs of a cluster that is removed: they are ended, their archives closed, their secrets removed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..archive import failures
from ..archive.archive import Archive
from ..archive.failures import FailureKind
from ..archive.status import ENDED, JobState
from ..common.findings import WARNING, Finding
from ..hooks import redact
from ..io.reading import UnreadableError
from ..queue import attempts
from ..ray.api import RayApiError
from .services import Answer, Services
from .stop import request_stop

REASON = "the cluster was removed"
# How long stewards have to end their jobs and to close the archives, all of them together.
END_SECONDS = 60.0
POLL_SECONDS = 0.2


def removal(closed: Sequence[str], findings: Sequence[Finding] = ()) -> Answer:
    """The jobs whose archives were closed, or would be in check mode, and findings on the others."""
    return Answer(bool(closed), {"closed": list(closed)}, tuple(findings))


def is_open(archive: Archive) -> bool:
    try:
        return archive.exists() and not archive.read_status().closed_at
    except UnreadableError:
        return True


def end_jobs(jobs: Path, registered: Sequence[str], services: Services, check_mode: bool = False) -> Answer:
    """On the head: let the stewards end the jobs of this cluster, and wait until they have closed the archives."""
    found = [archive for archive in (Archive(jobs / name) for name in registered) if is_open(archive)]
    if check_mode:
        return removal([archive.submission_id for archive in found])
    waiting = []
    for archive in found:
        try:
            ask_to_end(archive, services)
            waiting.append(archive)
        except RayApiError:
            # Nor does it answer for the others. Their archives are closed when the nodes are gone, as this one.
            break
        except Exception:  # noqa: S112 - whatever a job has put into its archive, the others are ended
            continue
    deadline = services.clock.monotonic() + END_SECONDS
    while any(map(is_open, waiting)) and services.clock.monotonic() < deadline:
        services.clock.sleep(POLL_SECONDS)
    return removal([archive.submission_id for archive in found if not is_open(archive)])


def ask_to_end(archive: Archive, services: Services) -> None:
    if archive.state() not in (*ENDED, JobState.ENDING):
        attempts.set_verdict(archive, failures.failure(FailureKind.STOPPED, REASON))
    request_stop(archive, services, "cluster_down.yml")


def close_jobs(jobs: Path, registered: Sequence[str], check_mode: bool = False) -> Answer:
    """On the head's machine, when no node runs any more: close the archives that the stewards have left."""
    closed, findings = [], []
    for archive in (Archive(jobs / name) for name in registered):
        if check_mode:
            closed += [archive.submission_id] * is_open(archive)
            continue
        try:
            # Also of a job without an archive.
            redact.forget(archive.path)
            if is_open(archive):
                close_removed(archive)
                closed.append(archive.submission_id)
        except Exception as error:
            file = redact.secrets_file(archive.path)
            todo = f"remove the file with its secrets: {file}" if file.exists() else "nothing; its job has ended"
            findings.append(Finding(archive.submission_id, f"its archive cannot be closed: {error}", todo, WARNING))
    return removal(closed, findings)


def close_removed(archive: Archive) -> None:
    """Record the end of a job that no process looks after any more."""
    # There is no further attempt.
    archive.ask_to_stop("cluster_down.yml")
    try:
        if archive.read_status().state not in ENDED:
            attempts.record_stop(archive, REASON)
    except UnreadableError as error:
        archive.set_status(JobState.STOPPED, reason=f"{REASON}; its status was lost: {error}")
    attempts.close(archive, str(archive.state()))
