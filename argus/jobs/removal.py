# SPDX-License-Identifier: Apache-2.0
"""Ends the jobs of a cluster that cluster_down.yml removes, in two steps.

`end_jobs` runs on the head while the stewards live: they stop their jobs and close the archives. `close_jobs` runs when
no node is left: it closes the archives that are still open, and removes the files with secrets.

To close an archive is to write its final record, to which nothing is added afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..archive import failures
from ..archive.archive import Archive
from ..archive.failures import FailureKind
from ..archive.status import ENDED, JobState
from ..common.findings import WARNING, Finding
from ..hooks import worker_secrets
from ..io.reading import UnreadableError
from ..queue import attempts
from ..ray.api import RayApiError
from .services import Effect, Services
from .stop import POLL_INTERVAL_SECONDS, request_stop

REMOVAL_REASON = "the cluster was removed"
# The time for all stewards together to end their jobs and to close the archives.
END_TIMEOUT_SECONDS = 60.0


def removal_effect(closed: Sequence[str], findings: Sequence[Finding] = ()) -> Effect:
    """The effect of a step: the ids of the jobs that it closed, or would close in check mode, and its findings."""
    return Effect(bool(closed), {"closed": list(closed)}, tuple(findings))


def is_open(archive: Archive) -> bool:
    try:
        return archive.exists() and not archive.read_status().closed_at
    except UnreadableError:
        return True


def end_jobs(jobs: Path, registered: Sequence[str], services: Services, check_mode: bool = False) -> Effect:
    """Ask the stewards to end the jobs of this cluster, and wait until they have closed the archives.

    jobs: the directory of the archives. registered: the ids of the cluster's jobs.
    """
    open_archives = [archive for archive in (Archive(jobs / name) for name in registered) if is_open(archive)]
    if check_mode:
        return removal_effect([archive.submission_id for archive in open_archives])
    waiting = []
    for archive in open_archives:
        try:
            request_end(archive, services)
            waiting.append(archive)
        except RayApiError:
            # The head would not answer for the other jobs either. close_jobs closes them all when the nodes are gone.
            break
        except Exception:  # noqa: S112 - one broken archive must not keep other jobs running
            continue
    deadline = services.clock.monotonic() + END_TIMEOUT_SECONDS
    while any(map(is_open, waiting)) and services.clock.monotonic() < deadline:
        services.clock.sleep(POLL_INTERVAL_SECONDS)
    return removal_effect([archive.submission_id for archive in open_archives if not is_open(archive)])


def request_end(archive: Archive, services: Services) -> None:
    if archive.state() not in (*ENDED, JobState.ENDING):
        attempts.record_stop_cause(archive, failures.failure(FailureKind.STOPPED, REMOVAL_REASON))
    request_stop(archive, services, "cluster_down.yml")


def close_jobs(jobs: Path, registered: Sequence[str], check_mode: bool = False) -> Effect:
    """Close the archives that the stewards have left open, and remove all secrets. Runs on the head's machine."""
    closed, findings = [], []
    for archive in (Archive(jobs / name) for name in registered):
        if check_mode:
            closed += [archive.submission_id] * is_open(archive)
            continue
        try:
            # A job without an archive may have secrets as well.
            worker_secrets.forget(archive.path)
            if is_open(archive):
                close_archive(archive)
                closed.append(archive.submission_id)
        except Exception as error:
            file = worker_secrets.secrets_path(archive.path)
            remedy = f"remove the file with its secrets: {file}" if file.exists() else "nothing; its job has ended"
            findings.append(Finding(archive.submission_id, f"its archive cannot be closed: {error}", remedy, WARNING))
    return removal_effect(closed, findings)


def close_archive(archive: Archive) -> None:
    # With this request in the archive, no further attempt starts.
    archive.ask_to_stop("cluster_down.yml")
    try:
        if archive.read_status().state not in ENDED:
            attempts.record_unattended_stop(archive, REMOVAL_REASON)
    except UnreadableError as error:
        archive.set_status(JobState.STOPPED, reason=f"{REMOVAL_REASON}; its status was lost: {error}")
    attempts.close_if_ended(archive, str(archive.state()))
