# SPDX-License-Identifier: Apache-2.0
"""Measures all-reduces between the workers of a running cluster through Ray, and finds the node that slows them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from itertools import chain
from statistics import median
from typing import Any

from ..ray.tasks import Connection, free_port

Group = tuple[str, ...]
# A pair below half the usual bandwidth is slow; the whole group below a tenth: more nodes share more links, and a
# collective over TCP does lose some of its rate.
SLOW_PAIR_FRACTION, SLOW_WHOLE_FRACTION = 0.5, 0.1


@dataclass(frozen=True)
class Bandwidth:
    """The bus bandwidth of one collective in GB/s; None with the error if it failed."""

    bandwidth: float | None
    error: str = ""


# Measures disjoint groups of nodes at the same time.
Measure = Callable[[Sequence[Group]], Sequence[Bandwidth]]


@dataclass(frozen=True)
class Verdict:
    """The measurements, and the nodes and links at fault.

    whole: all nodes together. measured: every smaller group; one node alone if it did not answer.
    bad: nodes that fail or are slow with a node that is fine. links: pairs of nodes that are fine with others.
    group: a group that fails although none of its parts does; empty if a node or a link explains it.
    usual: the bandwidth of most pairs; of three, between the slowest and the fastest; 0 if none was measured.
    """

    whole: Bandwidth
    measured: Mapping[Group, Bandwidth] = field(default_factory=dict)
    bad: tuple[str, ...] = ()
    links: tuple[Group, ...] = ()
    group: Group = ()
    usual: float = 0.0


class FaultSearch:
    """Bisects a failing collective: all nodes, pairs, each suspect with a good node, then halves."""

    def __init__(self, nodes: Sequence[str], measure: Measure) -> None:
        self.nodes = tuple(nodes)
        self.measured: dict[Group, Bandwidth] = {}
        self._measure = measure

    def run(self) -> Verdict:
        (whole,) = self._measure([self.nodes])
        if len(self.nodes) < 3:
            # With two nodes, either could be at fault.
            return Verdict(whole, group=self.nodes if self._fails(whole, 0.0) else ())
        pairs = self._pairs()
        # With an odd number, the first node is in two pairs; with three, every node is.
        three = len(self.nodes) == 3
        rates = [self.measured[pair].bandwidth for pair in (pairs if three else pairs[: len(self.nodes) // 2])]
        measured_rates = sorted(rate for rate in rates if rate is not None)
        usual = median(measured_rates[:1] + measured_rates[-1:] if three else measured_rates) if measured_rates else 0.0
        limit = SLOW_PAIR_FRACTION * usual
        suspects = [pair for pair in pairs if self._fails(self.measured[pair], limit)]
        unsuspected = set(chain.from_iterable(pair for pair in pairs if pair not in suspects))
        # Nodes that are also in a suspected pair come last.
        good = sorted(filter(unsuspected.__contains__, self.nodes), key=set(chain.from_iterable(suspects)).__contains__)
        bad, links = self._confirm(suspects, good, limit)
        group: Group = ()
        if not bad and not links and self._fails(whole, SLOW_WHOLE_FRACTION * usual):
            group = self._bisect(SLOW_WHOLE_FRACTION * usual)
        return Verdict(whole, dict(self.measured), tuple(bad), tuple(links), group, usual)

    @staticmethod
    def _fails(measured: Bandwidth, limit: float) -> bool:
        return measured.bandwidth is None or measured.bandwidth < limit

    def _measure_new(self, groups: Sequence[Group]) -> None:
        new = [group for group in groups if group not in self.measured]
        if new:
            self.measured.update(zip(new, self._measure(new), strict=True))

    def _pairs(self) -> list[Group]:
        """Measure disjoint pairs; afterwards, an odd last node with the first one; of three nodes, all pairs."""
        pairs = [self.nodes[at : at + 2] for at in range(0, len(self.nodes) - 1, 2)]
        self._measure_new(pairs)
        if len(self.nodes) % 2:
            odd = (self.nodes[-1], self.nodes[0])
            self._measure_new([odd])
            pairs.append(odd)
        if len(self.nodes) == 3:
            self._measure_new([self.nodes[1:]])
            pairs.append(self.nodes[1:])
        return pairs

    def _confirm(self, suspects: Sequence[Group], good: Sequence[str], limit: float) -> tuple[list[str], list[Group]]:
        """Measure every suspected node with a good one; as many at once as there are such nodes."""
        if not good:
            return [], []
        nodes = [node for node in dict.fromkeys(chain.from_iterable(suspects)) if node not in good]
        bad = []
        for at in range(0, len(nodes), len(good)):
            pairs = list(zip(nodes[at : at + len(good)], good, strict=False))
            self._measure_new(pairs)
            bad += [pair[0] for pair in pairs if self._fails(self.measured[pair], limit)]
        return bad, [pair for pair in suspects if not set(pair) & set(bad)]

    def _bisect(self, limit: float) -> Group:
        """The smallest group that fails although both of its halves do not."""
        group = self.nodes
        while len(group) > 2:
            middle = len(group) // 2
            halves = [half for half in (group[:middle], group[middle:]) if len(half) > 1]
            self._measure_new(halves)
            failing = [half for half in halves if self._fails(self.measured[half], limit)]
            if not failing:
                break
            group = failing[0]
        return group


def to_json(verdict: Verdict) -> dict[str, Any]:
    measured = [{"nodes": list(group), **asdict(measurement)} for group, measurement in verdict.measured.items()]
    return {**asdict(verdict), "measured": measured}


def from_json(answer: dict[str, Any]) -> Verdict:
    measured = {tuple(entry["nodes"]): Bandwidth(entry["bandwidth"], entry["error"]) for entry in answer["measured"]}
    return Verdict(
        Bandwidth(**answer["whole"]),
        measured,
        tuple(answer["bad"]),
        tuple(map(tuple, answer["links"])),
        tuple(answer["group"]),
        answer["usual"],
    )


# All-reduces between the workers of a running cluster, through Ray: gloo on CPUs, NCCL on GPUs.
#
# Runs on the head. A placement group holds the workers' resources meanwhile: GPUs of running jobs are never used.

ACCELERATOR_LABEL = "argus.verl/accelerator"
CPU = "cpu"
RESERVE_TIMEOUT_SECONDS = 15.0
# The number of reductions, the time limit of each step such as connecting, and the limit until all processes run, which
# is longer because torch is imported from a cold disk.
REPETITIONS, STEP_SECONDS, START_TIMEOUT_SECONDS = 5, 30.0, 90.0
# The tensor in MiB: large enough that latencies do not count, on CPUs small enough for seconds.
GLOO, NCCL = "gloo", "nccl"
TENSOR_MIB = {GLOO: 64, NCCL: 1024}
MAX_ERROR_CHARS = 200


@dataclass(frozen=True)
class Worker:
    """A worker node, its kind of accelerator, and how many processes it runs."""

    name: str
    node_id: str
    address: str
    processes: int
    accelerator: str


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
    return NCCL if workers and workers[0].accelerator != CPU else GLOO


def bus_bandwidth(mib: int, processes: int, seconds: float) -> float:
    """The GB/s that each link carries, independent of the number of processes, as in nccl-tests."""
    return (mib << 20) * 2 * (processes - 1) / processes / max(seconds, 1e-9) / 1e9


def is_peer_timeout(error: str) -> bool:
    """Whether an error is that of a process that has waited for others."""
    return "Dist" in error or "timeout" in error.lower() or "no answer" in error


class WorkerGroups:
    """Measures groups of workers, whose resources it holds."""

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
        first = [self._workers[group[0]] for group in groups]
        ports = {worker.name: self._connection.on(worker.node_id, free_port, worker.address) for worker in first}
        free_ports, problems = self._connection.results(ports, STEP_SECONDS)
        started: dict[str, Any] = {}
        for group in groups:
            if group[0] in free_ports:
                started |= self._start(group, free_ports[group[0]])
        # Starting, connecting and measuring each have their own limit in the processes.
        futures = {key: task.future() for key, task in started.items()}
        values, failed = self._connection.results(futures, START_TIMEOUT_SECONDS + 3 * STEP_SECONDS)
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
        # Each measurement needs a new process: torch numbers its groups, and the numbers differ after a failure.
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
            # The processes that wait for a failed one have less informative errors.
            return Bandwidth(None, min(errors, key=is_peer_timeout, default="no answer"))
        slowest = max(values[name] for name in names)
        return Bandwidth(round(bus_bandwidth(TENSOR_MIB[self._backend], len(names), slowest), 3))


def all_reduce(expected: Sequence[str]) -> dict[str, Any]:
    """Measure, and return the verdict as JSON, or ``skipped`` with the reason.

    expected: the names of all workers.
    """
    connection = Connection()
    if connection.problem:
        return {"skipped": connection.problem}
    connection.ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    workers = workers_of(connection.nodes())
    absent = sorted({*expected} - {worker.name for worker in workers})
    # Ray takes a node that hangs for alive, and a placement group waits for it.
    probes = {worker.name: connection.on(worker.node_id, free_port, worker.address) for worker in workers}
    if probes:
        # The limit of the others starts with the first answer: on a busy cluster, all of them start slowly.
        wait(probes.values(), START_TIMEOUT_SECONDS, return_when=FIRST_COMPLETED)
    _ports, problems = connection.results(probes, STEP_SECONDS)
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


# --- One process of an all-reduce, on a worker: the code travels there by value ---------------------------------------


def time_all_reduce_or_error(rank: int, address: str, port: int, world: int, backend: str) -> float | str:
    """Return the seconds of one all-reduce, or the error in one line. Only the rank differs between the processes."""
    try:
        return time_all_reduce(rank, address, port, world, backend)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return f"{type(error).__name__}: {lines[0][:MAX_ERROR_CHARS]}"


def time_all_reduce(rank: int, address: str, port: int, world: int, backend: str) -> float:
    import torch
    import torch.distributed as dist

    on_gpu = backend == NCCL
    device = torch.device("cuda", 0) if on_gpu else torch.device("cpu")
    # GPU kernels continue after the call returns.
    synchronize = torch.cuda.synchronize if on_gpu else (lambda: None)
    store = dist.TCPStore(address, port, world, is_master=rank == 0, timeout=timedelta(seconds=START_TIMEOUT_SECONDS))
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=timedelta(seconds=STEP_SECONDS))
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
