# SPDX-License-Identifier: Apache-2.0
"""argus shell: opens a shell on the node of a job's driver, with the environment of that job and as its user."""

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
from .request import VerbRequest, common_options, request_from

# How long before the deadline of a job its shells are warned.
NOTICE_SECONDS = 300.0
POLL_INTERVAL_SECONDS = 5.0


@click.command(name="shell", short_help="Open a shell with the environment of a running job.")
@click.argument("submission_id", metavar="ID")
@common_options
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
    # With this variable, a ray.init in the shell would replace the driver of the job.
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
    """Print when the job ends by its deadline, and warn again NOTICE_SECONDS before, from a child process."""
    if not deadline or not submitted_at:
        return
    seconds_left = submitted_at + deadline - time.time()
    click.echo(f"This job ends in {duration(seconds_left)}, at its deadline.", err=True)
    shell_pid, notice_time = os.getpid(), time.monotonic() + seconds_left - NOTICE_SECONDS
    if os.fork() == 0:
        # Without the shell, this process gets another parent.
        while os.getppid() == shell_pid and time.monotonic() < notice_time:
            time.sleep(POLL_INTERVAL_SECONDS)
        if os.getppid() == shell_pid:
            click.echo(
                f"\r\nThis job ends in {duration(min(seconds_left, NOTICE_SECONDS))}, at its deadline.\r", err=True
            )
        os._exit(0)
