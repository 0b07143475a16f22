# SPDX-License-Identifier: Apache-2.0
"""Exports a job's checkpoint as a model: verl's own model_merger writes the format of transformers on a worker."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..archive import checkpoints
from ..archive.archive import Archive
from ..common.shared_root import HF_HOME, JOBS_DIR, is_under_root
from ..common.text import printable, size_text
from ..io.hydra import override_key, override_text
from ..io.reading import UnreadableError, list_directory
from ..ray.tasks import Connection, last_line
from . import merging
from .files import files_below
from .lock import Progress
from .manifest import MANIFEST, Manifest
from .options import NAME, StagingError
from .store import Built

# Asks Ray for room on a worker, and merges a checkpoint there. A running job keeps what it has.

WORKER = "worker_node"
CPUS = 2
# verl's merger holds all shards and then the merged weights in memory, in bfloat16 and at first as saved.
MEMORY_FACTOR, MEMORY_MORE = 2, 2 << 30
FREE_WORKER_TIMEOUT_SECONDS, MERGE_TIMEOUT_SECONDS = 60.0, 6 * 3600.0


@dataclass(frozen=True)
class MergeRequest:
    """A complete checkpoint, and where it is merged.

    size: of the shards with the weights, in bytes. adapter: the LoRA adapter with which the training began, if any.
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
    if any(all(has.get(name, 0) >= amount for name, amount in needs.items()) for has in workers.values()):
        return ""
    have = ", ".join(
        f"{name}: {has.get('CPU', 0):g} CPUs, {size_text(has.get('memory', 0))}"
        for name, has in sorted(workers.items())
    )
    return f"needs {needs_text(needs)} on one worker, and none has that ({have or 'no worker is alive'})."


def needs_text(needs: Mapping[str, float]) -> str:
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
    # The placement group reserves the room, so that the start of the merge is known.
    room = placement_group([request.needs])
    try:
        if not room.wait(FREE_WORKER_TIMEOUT_SECONDS):
            within = f"free within {FREE_WORKER_TIMEOUT_SECONDS:.0f} s"
            text = f"found no worker with {needs_text(request.needs)} {within}: jobs use them."
            raise StagingError(request.label, text, "Run it again when a job has ended; status.yml lists them.")
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
        code, output = ray.get(task.remote(*where, MERGE_TIMEOUT_SECONDS, request.adapter))
        return int(code), str(output)
    except StagingError:
        raise
    except Exception as error:
        # Ray raises many types, such as for a killed worker or a lack of memory.
        text = f"was not merged: {last_line(error)}."
        raise StagingError(request.label, text, "Run it again; cluster_status.yml shows the workers.") from error
    finally:
        remove_placement_group(room)


# A checkpoint of a job as a model: verl's own model_merger writes it in the format of transformers, on a worker.

# A submission id is a NAME.
CHECKPOINT_PATTERN = re.compile(rf"job:(?P<job>{NAME.pattern})(?:@(?P<step>0|[1-9][0-9]{{0,14}}))?")
CHECKPOINT_PREFIX = "job:"
STATUS = "status.yml shows the checkpoints of a job"
MAX_OUTPUT_LINES = 12
# The setting of the initial adapter: verl saves only the rank and alpha of an adapter's configuration.
ADAPTER_PATH = "model.lora_adapter_path"
Merge = Callable[[MergeRequest, Progress], tuple[int, str]]


@dataclass(frozen=True)
class CheckpointSource:
    """A checkpoint of a job; without a step, the last complete one."""

    shared_root: Path
    job: str
    step: int | None = None
    merge: Merge = merge_on_worker

    @property
    def default_name(self) -> str:
        return f"{self.job}-step-{self.step}"

    def pinned(self) -> CheckpointSource:
        """The source with a fixed step, because a running job saves further checkpoints."""
        return self if self.step is not None else replace(self, step=self.find().step)

    def size(self) -> int:
        return self.find().size

    def difference(self, manifest: Manifest) -> str:
        prefix, step = f"{CHECKPOINT_PREFIX}{self.job}@", self.step
        if step is None and manifest.source.startswith(prefix):
            # The model does not need the archive any more.
            with suppress(StagingError):
                step = self.find().step
            if step is None:
                return ""
        if manifest.source == f"{prefix}{step}":
            return ""
        return f"contains {manifest.source}, not {CHECKPOINT_PREFIX}{self.job}{'' if step is None else f'@{step}'}."

    def write_to(self, directory: Path, progress: Progress, manifest: Manifest | None) -> Built:
        merge = self.find()
        progress.begin(f"waiting for a worker to merge {merge.label}")
        code, output = self.merge(replace(merge, target=directory), progress)
        if code:
            lines = [printable(line, lines=False) for line in output.strip().splitlines()[-MAX_OUTPUT_LINES:]]
            problem = "\n".join([f"could not be merged by verl's model_merger (exit code {code}):", *lines, ""])
            raise StagingError(merge.label, problem, "The last line tells why. Nothing was staged.")
        settle(directory)
        return Built({"source": merge.label, "job": self.job, "step": merge.step, "code_id": merge.code_id})

    def find(self) -> MergeRequest:
        """The checkpoint, without a target; an error if there is none that can be merged."""
        where = f"{CHECKPOINT_PREFIX}{self.job}"
        archive = Archive(self.shared_root / JOBS_DIR / self.job)
        try:
            plan = archive.plan()
            if plan is None or plan.workload not in checkpoints.SHARD_DIRECTORIES:
                raise StagingError(where, f"there is no job {self.job}.", "status.yml lists the latest jobs.")
            good = self._complete(archive.path / "checkpoints", plan.workload)
            directory = good.path / checkpoints.SHARD_DIRECTORIES[plan.workload][0]
            paths = [override_text(item) for item in plan.overrides if override_key(item).endswith(ADAPTER_PATH)]
            adapter = paths[-1] if paths and paths[-1] != "null" else ""
            return MergeRequest(
                label=f"{where}@{good.step}",
                step=good.step,
                code_path=merger_of(plan.code_path, self.shared_root),
                code_id=plan.code_id,
                checkpoint=str(directory),
                hf_home=str(self.shared_root / HF_HOME),
                size=shard_bytes(directory),
                adapter=adapter,
            )
        except UnreadableError as error:
            raise StagingError(where, f"cannot be read: {error}.", "Choose another job.") from error

    def _complete(self, directory: Path, workload: str) -> checkpoints.Checkpoint:
        where, problems = f"{CHECKPOINT_PREFIX}{self.job}", []
        for checkpoint in checkpoints.saved_checkpoints(directory, workload):
            if self.step in (None, checkpoint.step):
                if not checkpoint.problem or checkpoint.is_model:
                    return checkpoint
                problems.append(checkpoint.problem)
        if self.step is not None and not problems:
            raise StagingError(where, f"has no checkpoint of step {self.step}.", f"{STATUS}.")
        why = "; ".join(problems) or "it saved none"
        raise StagingError(where, f"has no complete checkpoint: {why}.", f"{STATUS}.")


def merger_of(code_path: str, shared_root: Path) -> str:
    """The snapshot of a job, which must have a model_merger. Jobs can write anything into their plans."""
    if not is_under_root(code_path, str(shared_root)):
        raise StagingError(f'code_path "{code_path}"', f"is not below {shared_root}.", "Choose another job.")
    if not Path(code_path, "verl", "model_merger", "__main__.py").is_file():
        text = "has no verl/model_merger/."
        raise StagingError(code_path, text, "Stage the snapshot of the job again; another release is not used instead.")
    return code_path


def shard_bytes(directory: Path) -> int:
    """The size of the weights; an error if another backend than FSDP has written them, or a part is missing."""
    names = set(list_directory(directory))
    if "fsdp_config.json" not in names or "huggingface" not in names:
        missing = " and ".join(sorted({"fsdp_config.json", "huggingface"} - names))
        text = f"has no {missing}: it was not saved by verl's FSDP, and only that can be merged."
        raise StagingError(directory, text, "Convert it with the tools of its backend, and stage the directory.")
    size = sum((directory / file).lstat().st_size for file in names if file.startswith("model_world_size_"))
    if not size:
        text = "has no shards of the model, as save_contents without model saves it."
        raise StagingError(directory, text, f"With hf_model, {directory}/huggingface is a model: stage that directory.")
    return size


def settle(directory: Path) -> None:
    """Ensure that the output of a job's code is plain files, readable by all users of models."""
    (directory / MANIFEST).unlink(missing_ok=True)
    for name in files_below(directory):
        if not stat.S_ISREG((directory / name).lstat().st_mode):
            problem = f"{name} is a link or a special file, which a model has not."
            raise StagingError(directory, problem, "Nothing was staged. Look at the code of the job's snapshot.")
        # safetensors writes mode 0600.
        (directory / name).chmod(0o644)
