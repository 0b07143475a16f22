# SPDX-License-Identifier: Apache-2.0
"""Measures all-reduces between the workers of a running cluster, with gloo on CPUs and NCCL on GPUs.

`all_reduce` runs on the head. A placement group holds the resources of the workers meanwhile, so the GPUs of running
jobs are never used. `fault_search.py` chooses the groups to measure, and finds the worker at fault.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from ..ray.tasks import Connection, free_port
from .fault_search import Bandwidth, FaultSearch, Group, Verdict, to_json

# The label that this collection gives to Ray nodes, and its value for a node without accelerators.
ACCELERATOR_LABEL, CPU = "argus.verl/accelerator", "cpu"
RESERVE_TIMEOUT_SECONDS = 15.0
# The limit of each step of a process, such as connecting.
STEP_TIMEOUT_SECONDS = 30.0
# The limit until all processes run, which is longer because torch is imported from a cold disk.
START_TIMEOUT_SECONDS = 90.0
# The number of reductions that are measured together.
REPETITIONS = 5
# The backends of torch.distributed, and the MiB of the tensor for each: large enough that latencies do not count, on
# CPUs small enough for seconds.
GLOO, NCCL = "gloo", "nccl"
TENSOR_MIB = {GLOO: 64, NCCL: 1024}
MAX_ERROR_CHARS = 200


@dataclass(frozen=True)
class Worker:
    """A worker node of Ray."""

    name: str
    node_id: str
    address: str
    processes: int  # how many processes of the all-reduce it runs: one for each GPU, or one
    accelerator: str  # cpu, or the kind of its GPUs


class SkippedError(Exception):
    """Nothing was measured; the message says why."""


def workers_of(nodes: Sequence[dict[str, Any]]) -> list[Worker]:
    """The workers among Ray's nodes: those with CPUs, since the head has none."""
    workers = []
    for node in nodes:
        resources = node["Resources"]
        if resources.get("CPU"):
            accelerator = (node.get("Labels") or {}).get(ACCELERATOR_LABEL, CPU)
            processes = 1 if accelerator == CPU else int(resources.get("GPU", 0))
            name = node.get("NodeName") or node["NodeManagerHostname"]
            workers.append(Worker(name, node["NodeID"], node["NodeManagerAddress"], processes, accelerator))
    return sorted((worker for worker in workers if worker.processes), key=lambda worker: worker.name)


def backend_of(workers: Sequence[Worker]) -> str:
    """The backend of torch.distributed for these workers."""
    return NCCL if workers and workers[0].accelerator != CPU else GLOO


def bus_bandwidth(mib: int, processes: int, seconds: float) -> float:
    """The GB/s that each link carries, independent of the number of processes, as in nccl-tests."""
    return (mib << 20) * 2 * (processes - 1) / processes / max(seconds, 1e-9) / 1e9


def is_peer_timeout(error: str) -> bool:
    """Whether an error comes from a process that waited in vain for another one, which has the cause."""
    return "Dist" in error or "timeout" in error.lower() or "no answer" in error


class WorkerGroups:
    """Holds the resources of all workers until it is closed, and measures groups of them."""

    def __init__(self, connection: Connection, workers: Sequence[Worker]) -> None:
        self._connection = connection
        self._workers = {worker.name: worker for worker in workers}
        self._backend = backend_of(workers)
        self._reserve(workers)

    def _reserve(self, workers: Sequence[Worker]) -> None:
        from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group

        resource = "GPU" if workers[0].accelerator != CPU else "CPU"
        # Pinned to these nodes: Ray would also choose a node that hangs, and wait.
        bundles = [{resource: float(worker.processes), f"node:{worker.address}": 0.001} for worker in workers]
        self._group = placement_group(bundles, strategy="STRICT_SPREAD")
        if not self._group.wait(RESERVE_TIMEOUT_SECONDS):
            remove_placement_group(self._group)
            raise SkippedError("jobs use the workers: run it again when they have ended")
        places = placement_group_table(self._group)["bundles_to_node_id"]
        self._place = {node_id: int(index) for index, node_id in places.items()}

    def close(self) -> None:
        from ray.util.placement_group import remove_placement_group

        remove_placement_group(self._group)

    def measure(self, groups: Sequence[Group]) -> list[Bandwidth]:
        """The bandwidth of each group. The groups are disjoint and run at the same time."""
        first = [self._workers[group[0]] for group in groups]
        ports = {worker.name: self._connection.start_on(worker.node_id, free_port, worker.address) for worker in first}
        free_ports, problems = self._connection.results(ports, STEP_TIMEOUT_SECONDS)
        started: dict[str, Any] = {}
        for group in groups:
            if group[0] in free_ports:
                started |= self._start(group, free_ports[group[0]])
        # In the processes, connecting and each reduction have limits of their own.
        futures = {key: task.future() for key, task in started.items()}
        values, failed = self._connection.results(futures, START_TIMEOUT_SECONDS + 3 * STEP_TIMEOUT_SECONDS)
        for key in failed:
            with suppress(Exception):
                self._connection.ray.cancel(started[key], force=True)
        errors = {key: value for key, value in values.items() if isinstance(value, str)}
        return [self._result(group, values, {**problems, **failed, **errors}) for group in groups]

    def _start(self, group: Group, port: int) -> dict[str, Any]:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        members = [(name, number) for name in group for number in range(self._workers[name].processes)]
        first = self._workers[group[0]]
        group_arguments = first.address, port, len(members), self._backend
        share = {"num_cpus": 1} if self._backend == GLOO else {"num_cpus": 0, "num_gpus": 1}
        # A new process for each measurement: torch numbers its groups, and after a failure the numbers would differ.
        remote = self._connection.ray.remote(max_calls=1)(time_all_reduce_or_error)
        started = {}
        for rank, (name, number) in enumerate(members):
            place = PlacementGroupSchedulingStrategy(self._group, self._place[self._workers[name].node_id])
            task = remote.options(max_retries=0, scheduling_strategy=place, **share)
            started[f"{name} {number}"] = task.remote(rank, *group_arguments)
        return started

    def _result(self, group: Group, values: dict[str, Any], problems: dict[str, str]) -> Bandwidth:
        names = [f"{name} {number}" for name in group for number in range(self._workers[name].processes)]
        errors = [f"{key}: {text}" for key, text in problems.items() if key in (*names, group[0])]
        if errors or not all(name in values for name in names):
            # Not the error of a process that waited for the failed one, if there is another error.
            return Bandwidth(None, min(errors, key=is_peer_timeout, default="no answer"))
        slowest = max(values[name] for name in names)
        return Bandwidth(round(bus_bandwidth(TENSOR_MIB[self._backend], len(names), slowest), 3))


def all_reduce(expected: Sequence[str]) -> dict[str, Any]:
    """Measure all workers; returns the verdict, or ``skipped`` with the reason. expected: their inventory names."""
    connection = Connection()
    if connection.problem:
        return {"skipped": connection.problem}
    connection.ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    workers = workers_of(connection.nodes())
    absent = sorted({*expected} - {worker.name for worker in workers})
    # Ray lists a node that hangs as alive, and a placement group would wait for it.
    probes = {worker.name: connection.start_on(worker.node_id, free_port, worker.address) for worker in workers}
    if probes:
        # The limit for all answers starts with the first one: on a busy cluster, every node is slow.
        wait(probes.values(), START_TIMEOUT_SECONDS, return_when=FIRST_COMPLETED)
    _ports, problems = connection.results(probes, STEP_TIMEOUT_SECONDS)
    silent: dict[Group, Bandwidth] = {(name,): Bandwidth(None, problem) for name, problem in problems.items()}
    workers = [worker for worker in workers if worker.name not in problems]
    try:
        if len(workers) < 2:
            raise SkippedError("it needs two workers")
        with closing(WorkerGroups(connection, workers)) as cluster:
            verdict = FaultSearch([worker.name for worker in workers], cluster.measure).run()
    except SkippedError as error:
        if not silent:
            return {"skipped": str(error), "absent": absent}
        verdict = Verdict(Bandwidth(None, str(error)))
    verdict = replace(verdict, measured={**silent, **verdict.measured}, bad=(*problems, *verdict.bad))
    processes = sum(worker.processes for worker in workers)
    return {**to_json(verdict), "absent": absent, "backend": backend_of(workers), "processes": processes}


# The rest of the file runs in the processes on workers: Ray sends it there by value (register_pickle_by_value), so it
# uses nothing of the program outside this file.


def time_all_reduce_or_error(rank: int, address: str, port: int, world: int, backend: str) -> float | str:
    """The seconds of one all-reduce, or the error in one line. The arguments are those of `time_all_reduce`."""
    try:
        return time_all_reduce(rank, address, port, world, backend)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return f"{type(error).__name__}: {lines[0][:MAX_ERROR_CHARS]}"


def time_all_reduce(rank: int, address: str, port: int, world: int, backend: str) -> float:
    """The seconds of one all-reduce between `world` processes. The process with rank 0 listens at address and port."""
    import torch
    import torch.distributed as dist

    on_gpu = backend == NCCL
    device = torch.device("cuda", 0) if on_gpu else torch.device("cpu")
    # GPU kernels continue after the call returns.
    synchronize = torch.cuda.synchronize if on_gpu else (lambda: None)
    store = dist.TCPStore(address, port, world, is_master=rank == 0, timeout=timedelta(seconds=START_TIMEOUT_SECONDS))
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=world, timeout=timedelta(seconds=STEP_TIMEOUT_SECONDS)
    )
    try:
        # The first reduction connects all processes, and its result is known.
        first = torch.ones(1024, device=device)
        dist.all_reduce(first)
        if float(first.min()) != world or float(first.max()) != world:
            raise RuntimeError(f"the sum of {world} ones is {float(first.min())}")
        tensor = torch.zeros((TENSOR_MIB[backend] << 20) // 4, device=device)
        dist.all_reduce(tensor)
        synchronize()
        begin = time.perf_counter()
        for _number in range(REPETITIONS):
            dist.all_reduce(tensor)
        synchronize()
        return (time.perf_counter() - begin) / REPETITIONS
    finally:
        dist.destroy_process_group()
