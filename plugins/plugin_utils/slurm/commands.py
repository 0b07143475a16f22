# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Slurm's commands."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence

from ...module_utils.network.interfaces import resolved
from .allocation import RUNNING, Allocation, allocation_of, best
from .text import SlurmError

# The controller of a busy site may need a while; its commands give up by themselves.
COMMAND_SECONDS = 120.0
NO_SUCH_JOB = "Invalid job id"
# What srun and sbatch have, because they hand it to hosts. There, jobs have the same user and can read it: no secrets.
PASSED = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "SLURM_CONF")
# What `module load` needs besides, in lines of slurm_setup. Not which modules are loaded: without all that these have
# set, they would only seem to be.
FOR_MODULES = re.compile(
    r"""SHELL|BASH_ENV|LD_LIBRARY_PATH|MODULESHOME|MODULEPATH(_ROOT)?|LMOD_(?!FAMILY_)\w+|MODULES_(?!LM)\w+
    |BASH_FUNC_(module|ml|_module_raw)(%%|\(\))""",
    re.VERBOSE,
)


def clean(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment without that of a job: inside of one, its variables would be options of every command."""
    prefixes = ("SLURM_", "SLURMD_", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_")
    kept = {name: text for name, text in environ.items() if not name.startswith(prefixes) or name == "SLURM_CONF"}
    # Seconds since the epoch, whatever the time zone is.
    return {**kept, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}


def passed_on(environ: Mapping[str, str], modules: bool = False) -> dict[str, str]:
    """The environment of srun and sbatch, as nearly empty as over SSH. modules: for a script that may load some."""
    own = clean(environ).items()
    passed = {name: text for name, text in own if name in PASSED or (modules and FOR_MODULES.fullmatch(name))}
    return {**passed, "LANG": "C.UTF-8"}


def run(argv: Sequence[str], given: str = "", environ: Mapping[str, str] | None = None) -> str:
    """The output of a command. environ: that of this process, if none is given."""
    try:
        done = subprocess.run(
            argv,
            input=given,
            env=clean(os.environ) if environ is None else environ,
            text=True,
            errors="replace",
            capture_output=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        raise SlurmError(f"There is no command {argv[0]} here. Run this where Slurm's commands are") from error
    except subprocess.TimeoutExpired as error:
        raise SlurmError(f"{argv[0]} did not answer within {COMMAND_SECONDS:.0f} s") from error
    if done.returncode:
        said = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
        raise SlurmError(f"{argv[0]}: {said}")
    return done.stdout


def job_named(name: str) -> int | None:
    """The id of this user's job of a name, which runs or waits."""
    return best(run(["squeue", "--me", "--noheader", "--format=%i %T", f"--name={name}"]))


def allocation(job_id: int) -> Allocation | None:
    """A job; None if Slurm has forgotten it."""
    try:
        jobs = run(["scontrol", "show", "job", "--details", "--oneliner", str(job_id)])
    except SlurmError as error:
        if NO_SUCH_JOB in str(error):
            return None
        raise
    found = allocation_of(jobs)
    if found is None or found.state != RUNNING:
        return found
    names = ",".join(host.name for host in found.hosts)
    return allocation_of(jobs, run(["scontrol", "show", "node", "--oneliner", names]), resolved)


def submit(script: str) -> int:
    answer = run(["sbatch", "--parsable"], script, passed_on(os.environ, modules=True))
    # With the name of the cluster where there are several.
    return int(answer.strip().splitlines()[-1].partition(";")[0])


def cancel(job_id: int) -> None:
    run(["scancel", str(job_id)])
