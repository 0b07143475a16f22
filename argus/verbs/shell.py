# SPDX-License-Identifier: Apache-2.0
"""argus shell: a shell on the node of a job's driver, with the environment of that job."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import click

from ..archive.archive import JOB_CONFIG_VARIABLE, JOB_VARIABLE
from ..archive.plan import Plan
from ..archive.status import ENDED
from ..common.identity import node_name
from ..common.shared_root import JOBS_DIR
from ..common.text import duration, printable
from ..hooks import worker_secrets
from ..jobs.listing import find_job
from ..jobs.services import OperationError
from .request import VerbRequest, common, request_from

# The time before the end of a job at which its shells are warned.
NOTICE_SECONDS, LOOK_SECONDS = 300.0, 5.0


@click.command(name="shell", short_help="Open a shell with the environment of a running job.")
@click.argument("submission_id", metavar="ID")
@common
def shell_command(as_json: bool, submission_id: str, **options: Any) -> None:
    """Open a shell with the environment of the job ID, whose driver runs on this node, as the user of the job."""
    archive = find_job(request_from(VerbRequest, as_json, **options).root / JOBS_DIR, submission_id)
    status, plan = archive.read_status(), archive.plan() or Plan()
    host, driver = str(status.driver.get("host") or ""), Path("/proc", str(status.driver.get("pid")))
    if status.state in ENDED or not host:
        raise OperationError(
            f"{archive.submission_id} is {status.state}: only a job that runs has a shell. argus status lists them"
        )
    if host != node_name():
        raise OperationError(
            f"the driver of {archive.submission_id} is on {printable(host, lines=False)}: run argus shell there"
        )
    try:
        owner, text = driver.stat(), (driver / "environ").read_text("utf-8", "surrogateescape")
    except OSError as error:
        raise OperationError(f"the driver of {archive.submission_id} does not run, or is not yours: {error}") from error
    environment = dict(pair.split("=", 1) for pair in text.split("\0") if "=" in pair)
    # With it, a ray.init would replace the driver of the job.
    environment.pop(JOB_CONFIG_VARIABLE, None)
    # A job can write any process id into its archive.
    if environment.get(JOB_VARIABLE) != archive.submission_id:
        raise OperationError(f"process {driver.name} is not the driver of {archive.submission_id}: its status is wrong")
    if not owner.st_uid:
        raise OperationError(f"{archive.submission_id} runs as root, and there is no shell as root: see ray_node_user")
    if os.geteuid() != owner.st_uid:
        os.setgroups([owner.st_gid])
        os.setgid(owner.st_gid)
        os.setuid(owner.st_uid)
    announce_end(status.submitted_at, plan.deadline)
    os.chdir(plan.directory or archive.path)
    shell = next((path for path in ("/bin/bash", "/bin/sh") if os.access(path, os.X_OK)), "sh")
    environment |= {**worker_secrets.load(archive.path), "TERM": os.environ.get("TERM", "dumb")}
    os.execve(shell, [shell], environment)  # noqa: S606


def announce_end(submitted_at: float | None, deadline: float | None) -> None:
    """Say when the job ends by its deadline, and again a few minutes before, from a process of its own."""
    if not deadline or not submitted_at:
        return
    left = submitted_at + deadline - time.time()
    click.echo(f"This job ends in {duration(left)}, at its deadline.", err=True)
    shell, until = os.getpid(), time.monotonic() + left - NOTICE_SECONDS
    if os.fork() == 0:
        while os.getppid() == shell and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
        if os.getppid() == shell:
            click.echo(f"\r\nThis job ends in {duration(min(left, NOTICE_SECONDS))}, at its deadline.\r", err=True)
        os._exit(0)
