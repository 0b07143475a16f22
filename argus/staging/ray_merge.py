# SPDX-License-Identifier: Apache-2.0
"""Merges a checkpoint in a task of Ray, on a worker that has room for it. Running jobs keep their resources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..archive import checkpoints
from ..common.text import size_text
from ..ray.tasks import Connection, last_line
from . import merging
from .options import StagingError
from .progress import Progress

# The resource of Ray that only workers have.
WORKER_RESOURCE = "worker_node"
CPU_COUNT = 2
# verl's merger holds all shards and then the merged weights in memory, in bfloat16 and at first as saved.
MEMORY_FACTOR, EXTRA_MEMORY_BYTES = 2, 2 << 30
FREE_WORKER_TIMEOUT_SECONDS, MERGE_TIMEOUT_SECONDS = 60.0, 6 * 3600.0


@dataclass(frozen=True)
class MergeRequest:
    """A complete checkpoint, and where it is merged."""

    label: str  # the checkpoint in messages and in the manifest: job:<submission_id>@<step>
    step: int
    code_path: str  # the snapshot of verl with which the job ran; its model_merger merges
    code_id: str
    checkpoint: str  # the directory with the shards
    hf_home: str
    size_bytes: int  # of the shards with the weights
    target: Path = Path()  # the empty directory that becomes the model; the caller of the merge sets it
    adapter: str = ""  # the path of the LoRA adapter with which the training began; empty if there was none

    @property
    def resources(self) -> dict[str, float]:
        """The resources of Ray that the merge takes."""
        return {"CPU": CPU_COUNT, WORKER_RESOURCE: 1, "memory": MEMORY_FACTOR * self.size_bytes + EXTRA_MEMORY_BYTES}


def no_room_problem(needs: Mapping[str, float], nodes: Iterable[Mapping[str, Any]]) -> str:
    """Why no worker has these resources, even when it is idle; empty if one has."""
    workers = {node["NodeName"]: node["Resources"] for node in nodes if node["Resources"].get(WORKER_RESOURCE)}
    if any(all(has.get(name, 0) >= amount for name, amount in needs.items()) for has in workers.values()):
        return ""
    have = ", ".join(
        f"{name}: {has.get('CPU', 0):g} CPUs, {size_text(has.get('memory', 0))}"
        for name, has in sorted(workers.items())
    )
    return f"needs {resources_text(needs)} on one worker, and none has that ({have or 'no worker is alive'})."


def resources_text(resources: Mapping[str, float]) -> str:
    return f"{resources['CPU']:g} CPUs and {size_text(resources['memory'])} of memory"


def merge_on_worker(
    request: MergeRequest, progress: Progress, connect: Callable[[], Connection] = Connection
) -> tuple[int, str]:
    """Merges a checkpoint, and returns the exit code and the end of the output of verl's merger.

    Raises StagingError if no worker has room, or Ray cannot run it. If this process dies, Ray ends the merge.
    """
    connection = connect()
    if connection.problem:
        raise StagingError(request.label, f"{connection.problem}.", "cluster_up.yml brings the cluster up.")
    try:
        problem = no_room_problem(request.resources, connection.nodes())
        if problem:
            raise StagingError(request.label, problem, "Use a larger worker, or an earlier checkpoint elsewhere.")
        return _merge_in_task(request, progress, connection.ray)
    finally:
        connection.ray.shutdown()


def _merge_in_task(request: MergeRequest, progress: Progress, ray: Any) -> tuple[int, str]:
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    ray.cloudpickle.register_pickle_by_value(merging)
    # The placement group reserves the resources first, so that it is known when the merge starts.
    room = placement_group([request.resources])
    try:
        if not room.wait(FREE_WORKER_TIMEOUT_SECONDS):
            within = f"free within {FREE_WORKER_TIMEOUT_SECONDS:.0f} s"
            text = f"found no worker with {resources_text(request.resources)} {within}: jobs use them."
            raise StagingError(request.label, text, "Run it again when a job has ended; status.yml lists them.")
        progress.begin(f"merging {request.label}", counter=lambda: checkpoints.size(request.target))
        needs = dict(request.resources)
        task = ray.remote(merging.merge).options(
            num_cpus=needs.pop("CPU"),
            memory=needs.pop("memory"),
            resources=needs,
            max_retries=0,
            scheduling_strategy=PlacementGroupSchedulingStrategy(room),
        )
        paths = request.code_path, request.checkpoint, str(request.target), request.hf_home
        code, output = ray.get(task.remote(*paths, MERGE_TIMEOUT_SECONDS, request.adapter))
        return int(code), str(output)
    except StagingError:
        raise
    except Exception as error:
        # Ray raises errors of many types, such as for a killed worker or a lack of memory.
        text = f"was not merged: {last_line(error)}."
        raise StagingError(request.label, text, "Run it again; cluster_status.yml shows the workers.") from error
    finally:
        remove_placement_group(room)
