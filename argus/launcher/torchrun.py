# SPDX-License-Identifier: Apache-2.0
"""Runs a trainer with torchrun: one Ray task on each of its nodes runs ``torch.distributed.run``.

The processes: driver -> a task in a Ray worker on each node -> torchrun (verb `ranks`) -> ranks (verb `rank`). When the
driver ends, Ray ends its workers on all nodes. Each process below them is killed when its parent has ended.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from ..archive.archive import Archive
from ..archive.plan import Plan
from ..archive.program import CURRENT_LINK, Program, versions_directory
from ..hooks import redact, worker_secrets
from ..queue import attempts
from ..ray.tasks import free_port
from .diagnosis import TORCHRUN_FAILED

TORCHRUN_MODULE = "torch.distributed.run"
PR_SET_PDEATHSIG = 1
# The variable with the process id of torchrun, in the environment of its ranks.
PARENT_VARIABLE = "ARGUS_VERL_TORCHRUN"
# How long to wait for the last words of the other ranks when one has failed: that they lost their connections.
LAST_OUTPUT_TIMEOUT_SECONDS = 5.0
# How long to wait for the last lines of tasks that have ended: Ray forwards them later.
LOG_DRAIN_SECONDS = 2.0
# A longer line is written in pieces.
MAX_LINE_BYTES = 1 << 16


def torchrun_arguments(plan: Plan, node_rank: str, master_address: str, master_port: str) -> list[str]:
    """The arguments of torchrun on a node, without the program of its ranks. The master is the node with rank 0."""
    return [
        f"--nnodes={plan.nnodes}",
        f"--nproc-per-node={plan.gpus_per_node}",
        f"--node-rank={node_rank}",
        f"--master-addr={master_address}",
        f"--master-port={master_port}",
        # A rank that fails ends the attempt. The next one resumes from the last checkpoint.
        "--max-restarts=0",
    ]


def die_with_parent(parent_pid: int) -> None:
    """Have this process killed when its parent has ended, also after exec."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


def run_all_ranks(archive: Archive, attempt: str) -> int:
    """On the driver's node, as the launcher's program: run all ranks to their end; returns the exit code."""
    try:
        return NodeTasks(archive, attempt).run()
    finally:
        time.sleep(LOG_DRAIN_SECONDS)


class NodeTasks:
    """The Ray tasks of an attempt, one on each of its nodes. Its creation connects to Ray and waits for free nodes."""

    def __init__(self, archive: Archive, attempt: str) -> None:
        import ray
        import ray.cloudpickle
        from ray.util.placement_group import placement_group

        self.ray, self.archive, self.attempt = ray, archive, attempt
        self.plan = plan = archive.plan() or Plan()
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__.partition(".")[0]])  # workers lack it
        ray.init(address="auto")
        # All nodes or none: two jobs that each hold some of them would wait for ever.
        bundles = [{"CPU": plan.cpus_per_node, "GPU": float(plan.gpus_per_node)}] * plan.nnodes
        self.group = placement_group(bundles, strategy="STRICT_SPREAD")
        ray.get(self.group.ready())

    def start(self, function: Callable[..., Any], node: int, *values: Any, cpus: float = 0, gpus: float = 0) -> Any:
        """Start a task on a node; returns a reference to its result."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        place = PlacementGroupSchedulingStrategy(self.group, placement_group_bundle_index=node)
        task = self.ray.remote(function).options(num_cpus=cpus, num_gpus=gpus, max_retries=0, scheduling_strategy=place)
        return task.remote(*values)

    def run(self) -> int:
        """Run torchrun on all nodes; returns 0, or the first other exit code. Ray ends the ranks with this process."""
        master_address, port = self.ray.get(self.start(free_address, 0))
        waiting = []
        for node in range(self.plan.nnodes):
            values = (str(self.archive.path), self.attempt, str(node), master_address, str(port))
            resources = {"cpus": self.plan.cpus_per_node, "gpus": self.plan.gpus_per_node}
            waiting.append(self.start(run_node, node, *values, **resources))
        while waiting:
            (ended,), waiting = self.ray.wait(waiting)
            code = int(self.ray.get(ended))
            if code:
                sys.stdout.write(f"{TORCHRUN_FAILED}, with exit code {code}\n")
                if waiting:
                    self.ray.wait(waiting, num_returns=len(waiting), timeout=LAST_OUTPUT_TIMEOUT_SECONDS)
                return code if code > 0 else 128 - code  # as a shell reports a signal
        return 0


def free_address() -> tuple[str, int]:
    """As a Ray task: the address of its node, and a port that is free there."""
    import ray

    address = ray.util.get_node_ip_address()
    return address, free_port(address)


def run_node(archive: str, attempt: str, node_rank: str, master_address: str, master_port: str) -> int:
    """As a Ray task: run the verb `ranks` on this node; returns its exit code, negative for a signal."""
    import ray

    values = (attempt, node_rank, master_address, master_port, str(os.getpid()), ray.util.get_node_ip_address())
    # The path may contain a variable of the node's environment. Ray forwards the output of this task to the driver.
    current = os.path.expandvars(f"{versions_directory()}/{CURRENT_LINK}")
    command = Program(current).command(archive, "ranks", *values)
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode


def exec_torchrun(
    archive: Archive, attempt: str, node_rank: str, master_address: str, master_port: str, parent_pid: str, address: str
) -> int:
    """On each node, as the verb `ranks`: become torchrun, which starts `exec_trainer`. address: of this node."""
    die_with_parent(int(parent_pid))
    plan = archive.plan() or Plan()
    os.environ |= {PARENT_VARIABLE: str(os.getpid()), **thread_variables(plan, os.environ.get("OMP_NUM_THREADS", ""))}
    # Where the host name resolves to 127.0.1.1, torchrun would take that as its own address.
    arguments = [*torchrun_arguments(plan, node_rank, master_address, master_port), f"--local-addr={address}"]
    _python, *rank = Program.of_this_process().command(str(archive.path), "rank", attempt)
    command = [sys.executable, "-m", TORCHRUN_MODULE, *arguments, *rank]
    os.execv(command[0], command)  # noqa: S606 - there is no shell


def thread_variables(plan: Plan, inherited_threads: str) -> dict[str, str]:
    """OMP_NUM_THREADS for each rank: its share of Ray's value for the task. A value of the job, another one, stays."""
    if plan.gpus_per_node and inherited_threads == f"{int(plan.cpus_per_node)}":
        return {"OMP_NUM_THREADS": f"{int(max(1, plan.cpus_per_node // plan.gpus_per_node))}"}
    return {}


def exec_trainer(archive: Archive, attempt: str) -> int:
    """As the verb `rank`: become the trainer, while a child process puts the rank before each line of output."""
    die_with_parent(int(os.environ[PARENT_VARIABLE]))
    plan = archive.plan() or Plan()
    prefix = f"(rank{os.environ['RANK']} pid={os.getpid()}) ".encode()
    reader, writer = os.pipe()
    if os.fork() == 0:
        # torchrun ends the process group of the trainer, whose last lines are still to be read.
        os.setsid()
        os.close(writer)
        copy_lines(reader, sys.stdout.fileno(), prefix, redact.Redactor(worker_secrets.load(archive.path).values()))
        os._exit(0)
    os.close(reader)
    for descriptor in (sys.stdout.fileno(), sys.stderr.fileno()):
        os.dup2(writer, descriptor)
    command = [sys.executable, "-m", plan.module, *attempts.recorded_overrides(archive, plan, int(attempt))]
    os.execv(command[0], command)  # noqa: S606 - there is no shell


def copy_lines(reader: int, output: int, prefix: bytes, redactor: redact.Redactor) -> None:
    """Copy lines from one file descriptor to another, with a prefix and without secrets."""
    with os.fdopen(reader, "rb") as lines, open(output, "wb", closefd=False) as stream:
        line = b"\n"
        while line:
            line = lines.readline(MAX_LINE_BYTES)
            if shown := redactor.feed(line) if line else redactor.finish():
                stream.write(prefix + shown.removesuffix(b"\n") + b"\n")
                stream.flush()
