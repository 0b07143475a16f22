# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks Ray for room on a worker, and merges a checkpoint there. A running job keeps what it has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..archive import checkpoints
from ..common.text import size_text
from ..ray.tasks import Connection, last_line
from . import merging
from .errors import StagingError
from .lock import Progress

WORKER = "worker_node"
CPUS = 2
# verl's merger has all shards in memory, and then the merged weights; both in bfloat16 and at first as they were saved.
MEMORY_FACTOR, MEMORY_MORE = 2, 2 << 30
# How long to wait until jobs release CPUs and memory, and how long a merge may take.
ROOM_SECONDS, MERGE_SECONDS = 60.0, 6 * 3600.0


@dataclass(frozen=True)
class MergeRequest:
    """A complete checkpoint, and where it is merged.

    size: of the shards with the weights, in bytes. adapter: that of LoRA with which the training began, if any.
    """

    label: str
    step: int
    code_path: str
    code_id: str
    checkpoint: str
    hf_home: str
    size: int
    target: Path = Path()
    adapter: str = ""

    @property
    def needs(self) -> dict[str, float]:
        """The resources of Ray that it takes."""
        return {"CPU": CPUS, WORKER: 1, "memory": MEMORY_FACTOR * self.size + MEMORY_MORE}


def no_room(needs: Mapping[str, float], nodes: Iterable[Mapping[str, Any]]) -> str:
    """Why no worker can ever have these resources; empty if one can."""
    workers = {node["NodeName"]: node["Resources"] for node in nodes if node["Resources"].get(WORKER)}
    if any(all(has.get(name, 0) >= wanted for name, wanted in needs.items()) for has in workers.values()):
        return ""
    have = ", ".join(
        f"{name}: {has.get('CPU', 0):g} CPUs, {size_text(has.get('memory', 0))}"
        for name, has in sorted(workers.items())
    )
    return f"needs {wanted_text(needs)} on one worker, and none has that ({have or 'no worker is alive'})."


def wanted_text(needs: Mapping[str, float]) -> str:
    return f"{needs['CPU']:g} CPUs and {size_text(needs['memory'])} of memory"


def merge_on_worker(
    request: MergeRequest, progress: Progress, connect: Callable[[], Connection] = Connection
) -> tuple[int, str]:
    """The exit code and the end of the output of the merge; an error if no worker has room for it.

    If this process dies, Ray releases the resources and ends the merge.
    """
    connection = connect()
    if connection.problem:
        raise StagingError(request.label, f"{connection.problem}.", "cluster_up.yml brings the cluster up.")
    try:
        problem = no_room(request.needs, connection.nodes())
        if problem:
            raise StagingError(request.label, problem, "Use a larger worker, or an earlier checkpoint elsewhere.")
        return _merge(request, progress, connection.ray)
    finally:
        connection.ray.shutdown()


def _merge(request: MergeRequest, progress: Progress, ray: Any) -> tuple[int, str]:
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    ray.cloudpickle.register_pickle_by_value(merging)
    # Reserved, and not only asked for: so it is known when it begins.
    room = placement_group([request.needs])
    try:
        if not room.wait(ROOM_SECONDS):
            what = f"found no worker with {wanted_text(request.needs)} free within {ROOM_SECONDS:.0f} s: jobs use them."
            raise StagingError(request.label, what, "Run it again when a job has ended; status.yml lists them.")
        progress.begin(f"merging {request.label}", counter=lambda: checkpoints.size(request.target))
        needs = dict(request.needs)
        task = ray.remote(merging.merge).options(
            num_cpus=needs.pop("CPU"),
            memory=needs.pop("memory"),
            resources=needs,
            max_retries=0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(room),
        )
        where = request.code_path, request.checkpoint, str(request.target), request.hf_home
        code, output = ray.get(task.remote(*where, MERGE_SECONDS, request.adapter))
        return int(code), str(output)
    except StagingError:
        raise
    except Exception as error:
        # Ray has many: the worker was killed, or its memory ran out.
        what = f"was not merged: {last_line(error)}."
        raise StagingError(request.label, what, "Run it again; cluster_status.yml shows the workers.") from error
    finally:
        remove_placement_group(room)
