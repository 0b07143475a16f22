# SPDX-License-Identifier: GPL-3.0-or-later
"""The batch script with which a cluster asks Slurm for its hosts, and the commands that submit and query it."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...module_utils.argus.common.findings import Finding
from ...module_utils.network.interfaces import resolve
from ...module_utils.slurm import step
from .allocation import RUNNING, Allocation, SlurmError, newest_job_id, parse_allocation

# The pattern and the remedy for each text field of a request.
FIELD_PATTERNS = {
    "time": (
        r"[0-9]+(?:-[0-9]+(?::[0-9]{1,2}){0,2}|(?::[0-9]{1,2}){0,2})",
        'set minutes, "H:MM:SS" or "D-HH:MM:SS", in quotes: YAML takes 12:00:00 for a number',
    ),
    "gpus": (r"(?:[A-Za-z0-9_.-]+:)?[0-9]+", "set a number, or a type and a number such as h100:8"),
    "memory": (r"[0-9]+[KMGT]?", "set MiB, or a number with its unit such as 64G"),
}
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


@dataclass(frozen=True)
class AllocationRequest:
    """The hosts to ask Slurm for; roles/slurm/README.md documents the variable slurm_<field> of each field."""

    job_name: str
    python: str
    nodes: int
    gpus: str = ""
    cpus: int | None = None
    memory: str = ""
    time: str = ""
    # Options of sbatch for the head's component of a heterogeneous job; empty for a job without one.
    head: Sequence[str] = ()
    options: Sequence[str] = ()
    setup: Sequence[str] = ()
    srun_options: Sequence[str] = ()
    prefix: Sequence[str] = ()


def request_findings(request: AllocationRequest) -> Iterator[Finding]:
    """What is wrong with a request. Slurm itself would take a line that it does not understand for a comment."""
    if request.nodes < 1:
        yield Finding("slurm_nodes", f"is {request.nodes}", "set how many hosts with workers the cluster has")
    if not request.python.startswith("/"):
        remedy = "set the absolute path of the Python in whose environment Ray and verl are installed"
        yield Finding("ray_node_python", "is not set to a path", remedy)
    for name, (pattern, remedy) in FIELD_PATTERNS.items():
        text = getattr(request, name)
        if text and not re.fullmatch(pattern, text):
            yield Finding(f"slurm_{name}", f"is {text!r}", remedy)
    for name in ("head", "options"):
        for word in getattr(request, name):
            if not re.fullmatch(r"-[^\n\0]*", word):
                yield Finding(f"slurm_{name}", f"has {word!r}", "list options of sbatch, such as --qos=high")
                break


def sbatch_options(**named: object) -> list[str]:
    """Options of sbatch from keyword arguments, without those that have no value."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in named.items() if value not in ("", None)]


def sbatch_directives(request: AllocationRequest) -> list[list[str]]:
    """The options of each component: the head's, if the request has options for it, and the workers'."""
    # Slurm keeps the allocation if a host is lost: a job that can do without it resumes on the others.
    common = ["--no-kill", *sbatch_options(time=request.time)]
    exclusive = ["--exclusive"] if request.cpus is None else []
    memory = request.memory or ("0" if request.cpus is None else "")
    workers = [
        f"--nodes={request.nodes}",
        "--ntasks-per-node=1",
        *exclusive,
        *sbatch_options(cpus_per_task=request.cpus, mem=memory, gpus_per_node=request.gpus),
        *request.options,
    ]
    # A job that Slurm requeues would come back without its cluster.
    first = [f"--job-name={request.job_name}", "--no-requeue"]
    if not request.head:
        return [[*first, *common, *workers]]
    return [[*first, *common, "--nodes=1", "--ntasks=1", *request.head], [*common, *workers]]


def step_command(request: AllocationRequest) -> str:
    """The command of the step that runs on every host of the job, and executes Ansible's commands there."""
    groups = ["--het-group=0-1"] if request.head else []
    options = ["--overlap", "--no-kill", "--kill-on-bad-exit=0", "--ntasks-per-node=1", "--cpu-bind=none", "--chdir=/"]
    words = shlex.join(["srun", *groups, *options, *request.srun_options, *request.prefix, request.python, "-I", "-c"])
    return f'{words} "$program" "/tmp/argus-verl-$(id -u)-$SLURM_JOB_ID"'


def batch_script(request: AllocationRequest) -> str:
    """The batch script. Its only step lasts until the job ends."""
    components = ["".join(f"#SBATCH {option}\n" for option in options) for options in sbatch_directives(request)]
    header = "#SBATCH hetjob\n".join(components)
    setup = "".join(f"{line}\n" for line in request.setup)
    program = inspect.getsource(step)
    return (
        f"#!/bin/bash\n{header}{setup}# Runs the commands of Ansible on each host, and with them the nodes of Ray.\n"
        f"program=$(cat <<'END_OF_PROGRAM'\n{program}END_OF_PROGRAM\n)\n{step_command(request)}\n"
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
