# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs Slurm's commands, with only those variables of the user's environment that they need."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence

from ...module_utils.network.interfaces import resolve
from .allocation import RUNNING, Allocation, newest_job_id, parse_allocation
from .scontrol import SlurmError

# Slurm's controller needs a while at a busy site, and its commands give up by themselves.
COMMAND_TIMEOUT_SECONDS = 120.0
NO_SUCH_JOB = "Invalid job id"
# The variables that srun and sbatch pass on to hosts, where jobs of the same user can read them: no secrets.
FORWARDED_VARIABLES = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "SLURM_CONF")
# Variables that `module load` in slurm_setup needs. LOADEDMODULES is left out, as modules would seem to be loaded
# although their other variables are missing.
MODULE_VARIABLES = re.compile(
    r"""SHELL|BASH_ENV|LD_LIBRARY_PATH|MODULESHOME|MODULEPATH(_ROOT)?|LMOD_(?!FAMILY_)\w+|MODULES_(?!LM)\w+
    |BASH_FUNC_(module|ml|_module_raw)(%%|\(\))""",
    re.VERBOSE,
)


def slurm_command_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for Slurm's commands, without the variables of a job, which they would take for options."""
    prefixes = ("SLURM_", "SLURMD_", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_")
    variables = {name: text for name, text in environ.items() if not name.startswith(prefixes) or name == "SLURM_CONF"}
    # Times in seconds since the epoch.
    return {**variables, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}


def step_environment(environ: Mapping[str, str], modules: bool = False) -> dict[str, str]:
    """The environment for srun and sbatch, nearly empty as over SSH. modules: whether their script may load modules."""
    variables = slurm_command_environment(environ)
    names = {*FORWARDED_VARIABLES, *(filter(MODULE_VARIABLES.fullmatch, variables) if modules else ())}
    return {**{name: text for name, text in variables.items() if name in names}, "LANG": "C.UTF-8"}


def run_command(argv: Sequence[str], stdin: str = "", environ: Mapping[str, str] | None = None) -> str:
    """Run a command, and return its output. Raises SlurmError.

    environ: None for the environment of this process without that of a job.
    """
    try:
        result = subprocess.run(
            argv,
            input=stdin,
            env=slurm_command_environment(os.environ) if environ is None else environ,
            text=True,
            errors="replace",
            capture_output=True,
            timeout=COMMAND_TIMEOUT_SECONDS,
            check=False,
        )
    except FileNotFoundError as error:
        raise SlurmError(f"There is no command {argv[0]} here. Run this where Slurm's commands are") from error
    except subprocess.TimeoutExpired as error:
        raise SlurmError(f"{argv[0]} did not answer within {COMMAND_TIMEOUT_SECONDS:.0f} s") from error
    if result.returncode:
        message = result.stderr.strip() or result.stdout.strip() or f"exit code {result.returncode}"
        raise SlurmError(f"{argv[0]}: {message}")
    return result.stdout


def find_job_id(name: str) -> int | None:
    """The id of this user's job of this name that runs or waits; None if there is none."""
    return newest_job_id(run_command(["squeue", "--me", "--noheader", "--format=%i %T", f"--name={name}"]))


def query_allocation(job_id: int) -> Allocation | None:
    """The job of an id; None if Slurm has forgotten it."""
    try:
        jobs = run_command(["scontrol", "show", "job", "--details", "--oneliner", str(job_id)])
    except SlurmError as error:
        if NO_SUCH_JOB in str(error):
            return None
        raise
    job = parse_allocation(jobs)
    if job is None or job.state != RUNNING:
        return job
    names = ",".join(host.name for host in job.hosts)
    return parse_allocation(jobs, run_command(["scontrol", "show", "node", "--oneliner", names]), resolve)


def submit(script: str) -> int:
    """Submit a batch script, and return the id of its job."""
    answer = run_command(["sbatch", "--parsable"], script, step_environment(os.environ, modules=True))
    # The id is followed by the name of the Slurm cluster where there are several.
    return int(answer.strip().splitlines()[-1].partition(";")[0])


def cancel(job_id: int) -> None:
    run_command(["scancel", str(job_id)])
