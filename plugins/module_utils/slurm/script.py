# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The batch script with which a cluster asks Slurm for its hosts."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from ..argus.common.findings import Finding
from . import step

TIME = re.compile(r"[0-9]+(?:-[0-9]+(?::[0-9]{1,2}){0,2}|(?::[0-9]{1,2}){0,2})")
GPUS = re.compile(r"(?:[A-Za-z0-9_.-]+:)?[0-9]+")
MEMORY = re.compile(r"[0-9]+[KMGT]?")
LINE = re.compile(r"[^\n\0]*")


@dataclass(frozen=True)
class Wish:
    """What is asked for; roles/slurm/README.md documents each. head: options of a component for the head alone."""

    job_name: str
    python: str
    nodes: int
    gpus: str = ""
    cpus: int | None = None
    memory: str = ""
    partition: str = ""
    account: str = ""
    time: str = ""
    constraint: str = ""
    nodelist: str = ""
    exclude: str = ""
    log: str = ""
    head: Sequence[str] = ()
    options: Sequence[str] = ()
    setup: Sequence[str] = ()
    srun_options: Sequence[str] = ()
    prefix: Sequence[str] = ()


def wish_findings(wish: Wish) -> list[Finding]:
    """What is wrong with it: Slurm takes a line that it does not understand for a comment."""
    found = []
    if wish.nodes < 1:
        found.append(Finding("slurm_nodes", f"is {wish.nodes}", "set how many hosts with workers the cluster has"))
    if not wish.python.startswith("/"):
        todo = "set the absolute path of the Python in whose environment Ray and verl are installed"
        found.append(Finding("ray_node_python", "is not set to a path", todo))
    if wish.time and not TIME.fullmatch(wish.time):
        todo = 'set minutes, "H:MM:SS" or "D-HH:MM:SS", in quotes: YAML takes 12:00:00 for a number'
        found.append(Finding("slurm_time", f"is {wish.time!r}", todo))
    if wish.gpus and not GPUS.fullmatch(wish.gpus):
        found.append(Finding("slurm_gpus", f"is {wish.gpus!r}", "set a number, or a type and a number such as h100:8"))
    if wish.memory and not MEMORY.fullmatch(wish.memory):
        found.append(Finding("slurm_memory", f"is {wish.memory!r}", "set MiB, or a number with its unit such as 64G"))
    if re.search(r"\s", wish.log):
        found.append(Finding("slurm_log", f"is {wish.log!r}", "set a path without blanks, such as logs/slurm-%j.out"))
    words = {"slurm_head": wish.head, "slurm_options": wish.options}
    for name, listed in words.items():
        wrong = [word for word in listed if not word.startswith("-") or not LINE.fullmatch(word)]
        if wrong:
            found.append(Finding(name, f"has {wrong[0]!r}", "list options of sbatch, such as --qos=high"))
    return found


def directives(wish: Wish) -> list[list[str]]:
    # Without one of its hosts, the others go on: a job that can do without it is resumed on them.
    of_all = ["--no-kill", *(f"--{name}={text}" for name, text in _named(wish) if text)]
    whole = ["--exclusive"] if wish.cpus is None else [f"--cpus-per-task={wish.cpus}"]
    memory = wish.memory or ("0" if wish.cpus is None else "")
    whole += [f"--mem={memory}"] if memory else []
    workers = [f"--nodes={wish.nodes}", "--ntasks-per-node=1", *whole]
    workers += [f"--{name}={text}" for name, text in _of_workers(wish) if text]
    workers += list(wish.options)
    # An allocation that is requeued comes back without its cluster.
    first = [f"--job-name={wish.job_name}", "--no-requeue", *([f"--output={wish.log}"] if wish.log else [])]
    if not wish.head:
        return [[*first, *of_all, *workers]]
    return [[*first, *of_all, "--nodes=1", "--ntasks=1", *wish.head], [*of_all, *workers]]


def _named(wish: Wish) -> list[tuple[str, str]]:
    return [("account", wish.account), ("time", wish.time)]


def _of_workers(wish: Wish) -> list[tuple[str, str]]:
    named = [("partition", wish.partition), ("gpus-per-node", wish.gpus)]
    return [*named, ("constraint", wish.constraint), ("nodelist", wish.nodelist), ("exclude", wish.exclude)]


def step_command(wish: Wish) -> str:
    """The step that runs commands, on every host of the job."""
    groups = ["--het-group=0-1"] if wish.head else []
    how = ["--overlap", "--no-kill", "--kill-on-bad-exit=0", "--ntasks-per-node=1", "--cpu-bind=none", "--chdir=/"]
    words = shlex.join(["srun", *groups, *how, *wish.srun_options, *wish.prefix, wish.python, "-I", "-c"])
    return f'{words} "$program" "/tmp/argus-verl-$(id -u)-$SLURM_JOB_ID"'


def script(wish: Wish) -> str:
    """The batch script. Its only step lasts until the job ends."""
    components = ["".join(f"#SBATCH {option}\n" for option in options) for options in directives(wish)]
    asked = "#SBATCH hetjob\n".join(components)
    setup = "".join(f"{line}\n" for line in wish.setup)
    program = inspect.getsource(step)
    return (
        f"#!/bin/bash\n{asked}{setup}# Runs the commands of Ansible on each host, and with them the nodes of Ray.\n"
        f"program=$(cat <<'END_OF_PROGRAM'\n{program}END_OF_PROGRAM\n)\n{step_command(wish)}\n"
    )
