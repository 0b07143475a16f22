# SPDX-License-Identifier: Apache-2.0
"""Starts a trainer with torchrun: one Ray task on each of its nodes runs ``torch.distributed.run``.

Driver -> task, in a Ray worker -> torchrun -> ranks. When the driver ends, Ray ends its workers on all nodes. Each
process below them is killed when its parent has ended, so no rank outlives the driver, however that ended.
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
from ..hooks import redact
from ..queue import attempts
from ..ray.tasks import free_port
from .diagnosis import TORCHRUN_FAILED

TORCHRUN_MODULE = "torch.distributed.run"
PR_SET_PDEATHSIG = 1
# The process id of torchrun, in the environment of its ranks.
PARENT_VARIABLE = "ARGUS_VERL_TORCHRUN"
# The other ranks lose their connections when one has ended, and say so.
LAST_OUTPUT_TIMEOUT_SECONDS = 5.0
# Ray brings the last lines of its workers after their tasks have ended.
LOG_DRAIN_SECONDS = 2.0
# A longer line is written in pieces.
MAX_LINE_BYTES = 1 << 16


def arguments(plan: Plan, node_rank: str, address: str, port: str) -> list[str]:
    """The arguments of torchrun on a node, without what its ranks run."""
    return [
        f"--nnodes={plan.nnodes}",
        f"--nproc-per-node={plan.gpus_per_node}",
        f"--node-rank={node_rank}",
        f"--master-addr={address}",
        f"--master-port={port}",
        # A rank that fails ends the attempt. The next one resumes from the last checkpoint.
        "--max-restarts=0",
    ]


def die_with(parent: int) -> None:
    """Have this process killed when its parent has ended, also after exec."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def torchrun(archive: Archive, attempt: str) -> int:
    """On the driver's node, as the trainer of the launcher: run all ranks to their end."""
    try:
        return Ranks(archive, attempt).run()
    finally:
        time.sleep(LOG_DRAIN_SECONDS)


class Ranks:
    def __init__(self, archive: Archive, attempt: str) -> None:
        import ray
        import ray.cloudpickle
        from ray.util.placement_group import placement_group

        self.ray, self.archive, self.attempt = ray, archive, attempt
        self.plan = plan = archive.plan() or Plan()
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__.partition(".")[0]])
        ray.init(address="auto")
        # All nodes or none: two jobs that each hold a part would wait for ever.
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
        """Returns 0, or the first exit code that is not 0: then the end of this process ends the other ranks."""
        master, port = self.ray.get(self.start(free_address, 0))
        waiting = []
        for node in range(self.plan.nnodes):
            values = (str(self.archive.path), self.attempt, str(node), master, str(port))
            room = {"cpus": self.plan.cpus_per_node, "gpus": self.plan.gpus_per_node}
            waiting.append(self.start(run_node, node, *values, **room))
        while waiting:
            (ended,), waiting = self.ray.wait(waiting)
            code = int(self.ray.get(ended))
            if code:
                sys.stdout.write(f"{TORCHRUN_FAILED}, with exit code {code}\n")
                if waiting:
                    self.ray.wait(waiting, num_returns=len(waiting), timeout=LAST_OUTPUT_TIMEOUT_SECONDS)
                return code if code > 0 else 128 - code
        return 0


def free_address() -> tuple[str, int]:
    """As a Ray task: the address of its node, and a port that is free there."""
    import ray

    address = ray.util.get_node_ip_address()
    return address, free_port(address)


def run_node(archive: str, *values: str) -> int:
    """As a Ray task: run torchrun; returns its exit code, negative for a signal."""
    import ray

    place = [str(os.getpid()), ray.util.get_node_ip_address()]
    # Ray forwards the output of this task to the driver.
    current = os.path.expandvars(f"{versions_directory()}/{CURRENT_LINK}")
    command = Program(current).command(archive, "ranks", *values, *place)
    return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode


def ranks(archive: Archive, attempt: str, node_rank: str, master: str, port: str, parent: str, address: str) -> int:
    die_with(int(parent))
    plan = archive.plan() or Plan()
    os.environ |= {PARENT_VARIABLE: str(os.getpid()), **threads(plan, os.environ.get("OMP_NUM_THREADS", ""))}
    # Where the host name resolves to 127.0.1.1, torchrun would take that as its own address.
    torchrun_arguments = [*arguments(plan, node_rank, master, port), f"--local-addr={address}"]
    _python, *rank = Program.of_this_process().command(str(archive.path), "rank", attempt)
    command = [sys.executable, "-m", TORCHRUN_MODULE, *torchrun_arguments, *rank]
    os.execv(command[0], command)  # noqa: S606 - there is no shell


def threads(plan: Plan, reserved: str) -> dict[str, str]:
    """The threads of each rank; Ray has given all that it reserves on a node to the task there."""
    if plan.gpus_per_node and reserved == f"{int(plan.cpus_per_node)}":
        return {"OMP_NUM_THREADS": f"{int(max(1, plan.cpus_per_node // plan.gpus_per_node))}"}
    return {}


def rank(archive: Archive, attempt: str) -> int:
    """As a process of torchrun: become the trainer, while another process names the rank in each line of its output."""
    die_with(int(os.environ[PARENT_VARIABLE]))
    plan = archive.plan() or Plan()
    prefix = f"(rank{os.environ['RANK']} pid={os.getpid()}) ".encode()
    reader, writer = os.pipe()
    if os.fork() == 0:
        # torchrun ends the group of the trainer, whose last lines are still to be read.
        os.setsid()
        os.close(writer)
        copy_lines(reader, sys.stdout.fileno(), prefix, redact.Redactor(redact.load(archive.path).values()))
        os._exit(0)
    os.close(reader)
    for descriptor in (sys.stdout.fileno(), sys.stderr.fileno()):
        os.dup2(writer, descriptor)
    command = [sys.executable, "-m", plan.module, *attempts.recorded_overrides(archive, plan, int(attempt))]
    os.execv(command[0], command)  # noqa: S606 - there is no shell


def copy_lines(reader: int, output: int, prefix: bytes, redactor: redact.Redactor) -> None:
    """Copy lines with a prefix, and without secrets."""
    with os.fdopen(reader, "rb") as lines, open(output, "wb", closefd=False) as stream:
        line = b"\n"
        while line:
            line = lines.readline(MAX_LINE_BYTES)
            if shown := redactor.feed(line) if line else redactor.rest():
                stream.write(prefix + shown.removesuffix(b"\n") + b"\n")
                stream.flush()
