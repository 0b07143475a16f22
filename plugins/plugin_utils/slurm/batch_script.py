# SPDX-License-Identifier: GPL-3.0-or-later
"""The batch script with which a cluster asks Slurm for its hosts; its only step runs Ansible's commands on them."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...module_utils.argus.common.findings import Finding
from ...module_utils.slurm import step

# The pattern and the remedy for each text field of a request.
FIELD_PATTERNS = {
    "time": (
        r"[0-9]+(?:-[0-9]+(?::[0-9]{1,2}){0,2}|(?::[0-9]{1,2}){0,2})",
        'set minutes, "H:MM:SS" or "D-HH:MM:SS", in quotes: YAML takes 12:00:00 for a number',
    ),
    "gpus": (r"(?:[A-Za-z0-9_.-]+:)?[0-9]+", "set a number, or a type and a number such as h100:8"),
    "memory": (r"[0-9]+[KMGT]?", "set MiB, or a number with its unit such as 64G"),
}


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
