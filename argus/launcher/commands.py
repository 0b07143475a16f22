# SPDX-License-Identifier: Apache-2.0
"""The verbs of ``argus launch VERB ARCHIVE …``, which Ray, the steward and the launcher call: one function each."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence

from ..archive import failures, samples
from ..archive.archive import Archive
from ..archive.failures import FailureKind
from ..archive.program import Program
from ..archive.status import JobState, ray_id
from ..evidence import evidence, node
from ..evidence.evidence import Moment
from ..hooks import redact, worker_secrets
from ..queue import attempts
from ..ray.api import job_client
from ..ray.tasks import Connection
from . import torchrun
from .launch import Launcher

# The pauses after submissions that failed.
RETRY_PAUSES_SECONDS = (2.0, 10.0, 30.0)


def run(archive: Archive, attempt: str) -> int:
    """On a worker, as the entrypoint of a job: run an attempt."""
    return Launcher(archive, int(attempt)).run()


def collect_evidence(archive: Archive, moment: str) -> int:
    """On any node: collect the evidence of a moment."""
    evidence.collect(archive, Moment(moment))
    return 0


def finish_attempt(archive: Archive) -> int:
    """After an attempt: collect its last evidence, sweep the nodes, and record the swept processes."""
    connection = Connection()
    evidence.collect(archive, Moment.END, connection)
    swept = evidence.sweep_job(archive, connection)
    # A killed launcher may have left samples. A job can put anything there.
    with contextlib.suppress(Exception):
        samples.keep(archive, redact.Redactor(worker_secrets.load(archive.path).values()).mask_text, is_over=True)
    attempt = attempts.current_attempt(archive)
    archive.write_json(f"debug/sweep-{attempt}.json", swept)
    archive.event(
        "SWEPT",
        attempt=attempt,
        killed=sum(len(node["killed"]) for node in swept["nodes"].values()),
        left=sum(len(node["left"]) for node in swept["nodes"].values()),
        **({"problems": swept["problems"]} if swept["problems"] else {}),
    )
    return 0


def submit(archive: Archive, attempt: str, sleep: Callable[[float], None] = time.sleep) -> int:
    """On the head: submit an attempt to Ray; if that fails, the archive records why."""
    try:
        attempts.prepare_attempt(archive, int(attempt))
        for pause in (*RETRY_PAUSES_SECONDS, None):
            try:
                attempts.submit(archive, int(attempt), job_client(evidence.address_of(archive)))
                break
            except Exception:
                # A busy head must not end a job that has waited for hours.
                if pause is None:
                    raise
                sleep(pause)
    except Exception as error:
        failure = failures.failure(FailureKind.UNKNOWN, f"it could not be submitted: {error}")
        attempts.record_end(archive, JobState.FAILED, failure)
        raise
    return 0


def cancel(archive: Archive, attempt: str) -> int:
    """On the head: end an attempt whose driver has not started."""
    attempts.cancel_pending(ray_id(archive.submission_id, int(attempt)))
    return 0


def stop(archive: Archive, attempt: str) -> int:
    """End an attempt through Ray's API."""
    job_client(evidence.address_of(archive)).stop_job(ray_id(archive.submission_id, int(attempt)))
    return 0


# The function of each verb. It gets the archive and the further arguments, and returns an exit code.
COMMANDS: dict[str, Callable[..., int]] = {
    "run": run,
    "evidence": collect_evidence,
    "end": finish_attempt,
    "submit": submit,
    "cancel": cancel,
    "stop": stop,
    "torchrun": torchrun.run_all_ranks,  # on the driver's node
    "ranks": torchrun.exec_torchrun,  # on each node of the trainer
    "rank": torchrun.exec_trainer,  # in each process of torchrun
}


# The verbs that run with the version of the program with which the job was submitted.
PINNED_VERBS = ("run", "ranks")


def main(arguments: Sequence[str]) -> int:
    """Run a verb; arguments: the verb, the path of the archive, and those of the verb."""
    # The permissions of everything written from here on, by the trainer too.
    os.umask(node.UMASK)
    verb, path, *rest = arguments
    archive = Archive(path)
    if verb in PINNED_VERBS and (program := Program.of_job(archive)) != Program.of_this_process():
        command = program.command(path, verb, *rest)
        os.execv(command[0], command)  # noqa: S606 - there is no shell
    return COMMANDS[verb](archive, *rest)
