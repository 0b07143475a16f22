# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What ``python3 <archive>/config/launcher VERB <archive> …`` does."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from . import attempts, evidence, failures
from .archive import FAILED, Archive
from .keep import Keeper
from .launch import Launcher

SUBMIT_AGAIN_SECONDS = (2, 10, 30)


def run(archive: Archive, attempt: str) -> int:
    """On a worker, as the entrypoint of an attempt."""
    return Launcher(archive, int(attempt)).run()


def keep(archive: Archive) -> int:
    """On the head, from the job's submission to its end."""
    return Keeper(archive).run()


def collect(archive: Archive, moment: str) -> int:
    """On any node."""
    evidence.collect(archive, moment)
    return 0


def end(archive: Archive) -> int:
    """When an attempt has ended: the last evidence; nothing of it is left on any node, and what that took."""
    connection = evidence.connect(archive)
    evidence.collect(archive, evidence.END, connection)
    found = evidence.sweep(archive, connection)
    attempt = attempts.current(archive)
    archive.write_json(f"debug/sweep-{attempt}.json", found)
    archive.event(
        "SWEPT",
        attempt=attempt,
        killed=sum(len(node["killed"]) for node in found["nodes"].values()),
        left=sum(len(node["left"]) for node in found["nodes"].values()),
        **({"problems": found["problems"]} if found["problems"] else {}),
    )
    return 0


def send(archive: Archive, attempt: str) -> int:
    from ray.job_submission import JobSubmissionClient

    client = JobSubmissionClient(evidence.address_of(archive))
    attempts.submit(archive, int(attempt), client)
    return 0


def submit(archive: Archive, attempt: str) -> int:
    """On the head: hand an attempt to Ray; if that fails, the archive says so."""
    try:
        attempts.prepare(archive, int(attempt))
        for pause in SUBMIT_AGAIN_SECONDS:
            try:
                return send(archive, attempt)
            except Exception:
                # A head that is busy must not be the end of a job that has waited for hours.
                time.sleep(pause)
        return send(archive, attempt)
    except Exception as error:
        reason = f"it could not be submitted: {error}"
        attempts.record_end(archive, FAILED, failures.failure("unknown", reason))
        raise


def cancel(archive: Archive, attempt: str) -> int:
    """On the head: end an attempt whose driver was not started yet."""
    attempts.cancel_pending(attempts.ray_id(archive.submission_id, int(attempt)))
    return 0


def stop(archive: Archive, attempt: str) -> int:
    """On the head: end an attempt that runs."""
    from ray.job_submission import JobSubmissionClient

    client = JobSubmissionClient(evidence.address_of(archive))
    client.stop_job(attempts.ray_id(archive.submission_id, int(attempt)))
    return 0


# By the verb: what is done, and the names of its arguments after the archive.
COMMANDS: dict[str, tuple[Callable[..., int], tuple[str, ...]]] = {
    "run": (run, ("ATTEMPT",)),
    "keep": (keep, ()),
    "evidence": (collect, ("MOMENT",)),
    "end": (end, ()),
    "submit": (submit, ("ATTEMPT",)),
    "cancel": (cancel, ("ATTEMPT",)),
    "stop": (stop, ("ATTEMPT",)),
}


def main(arguments: Sequence[str]) -> int:
    """Do what the arguments say; 64, sysexits' EX_USAGE, when that cannot be told."""
    verb, *rest = arguments or [""]
    if verb in COMMANDS and len(rest) == 1 + len(COMMANDS[verb][1]):
        return COMMANDS[verb][0](Archive(rest[0]), *rest[1:])
    for name, (_function, names) in COMMANDS.items():
        sys.stderr.write(f"usage: launcher {' '.join((name, 'ARCHIVE', *names))}\n")
    return 64
