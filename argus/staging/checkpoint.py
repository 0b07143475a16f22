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
from ..common.shared_root import HF_HOME_DIR, JOBS_DIR, is_under_root
from ..common.text import printable, size_text
from ..io.hydra import override_key, override_text
from ..io.reading import UnreadableError, list_directory
from ..ray.tasks import Connection, error_line
from . import merging
from .files import files_below
from .lock import Progress
from .manifest import MANIFEST, Manifest
from .options import LOWERCASE_NAME, StagingError
from .store import BuildResult

# Merges a checkpoint in a task of Ray, on a worker that has room for it. Running jobs keep their resources.

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
        progress.begin(f"merging {request.label}", counter=lambda: checkpoints.directory_bytes(request.target))
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
        text = f"was not merged: {error_line(error)}."
        raise StagingError(request.label, text, "Run it again; cluster_status.yml shows the workers.") from error
    finally:
        remove_placement_group(room)


# A checkpoint as the source of a model.

# A submission id is a LOWERCASE_NAME.
CHECKPOINT_PATTERN = re.compile(rf"job:(?P<job>{LOWERCASE_NAME.pattern})(?:@(?P<step>0|[1-9][0-9]{{0,14}}))?")
CHECKPOINT_PREFIX = "job:"
STATUS_REMEDY = "status.yml shows the checkpoints of a job"
MAX_OUTPUT_LINES = 12
# The setting with the path of the initial LoRA adapter. It is needed because verl saves only its rank and alpha.
ADAPTER_PATH = "model.lora_adapter_path"
MergeFunction = Callable[[MergeRequest, Progress], tuple[int, str]]


@dataclass(frozen=True)
class CheckpointSource:
    """A checkpoint of a job."""

    shared_root: Path
    job: str  # the submission id
    step: int | None = None  # None for the last complete checkpoint
    merge: MergeFunction = merge_on_worker

    @property
    def default_name(self) -> str:
        return f"{self.job}-step-{self.step}"

    def with_fixed_step(self) -> CheckpointSource:
        """The same source with the step that is the last one now: a running job saves further checkpoints."""
        return self if self.step is not None else replace(self, step=self.find_checkpoint().step)

    def size(self) -> int:
        return self.find_checkpoint().size_bytes

    def mismatch(self, manifest: Manifest) -> str:
        prefix, step = f"{CHECKPOINT_PREFIX}{self.job}@", self.step
        if step is None and manifest.source.startswith(prefix):
            # The archive may be gone: the staged model does not need it.
            with suppress(StagingError):
                step = self.find_checkpoint().step
            if step is None:
                return ""
        if manifest.source == f"{prefix}{step}":
            return ""
        return f"contains {manifest.source}, not {CHECKPOINT_PREFIX}{self.job}{'' if step is None else f'@{step}'}."

    def write_to(self, directory: Path, progress: Progress, manifest: Manifest | None) -> BuildResult:
        merge = self.find_checkpoint()
        progress.begin(f"waiting for a worker to merge {merge.label}")
        code, output = self.merge(replace(merge, target=directory), progress)
        if code:
            lines = [printable(line, lines=False) for line in output.strip().splitlines()[-MAX_OUTPUT_LINES:]]
            problem = "\n".join([f"could not be merged by verl's model_merger (exit code {code}):", *lines, ""])
            raise StagingError(merge.label, problem, "The last line tells why. Nothing was staged.")
        make_plain_files(directory)
        return BuildResult({"source": merge.label, "job": self.job, "step": merge.step, "code_id": merge.code_id})

    def find_checkpoint(self) -> MergeRequest:
        """A request to merge the checkpoint, without a target. Raises StagingError if it cannot be merged."""
        where = f"{CHECKPOINT_PREFIX}{self.job}"
        archive = Archive(self.shared_root / JOBS_DIR / self.job)
        try:
            plan = archive.plan()
            if plan is None or plan.workload not in checkpoints.SHARD_DIRECTORIES:
                raise StagingError(where, f"there is no job {self.job}.", "status.yml lists the latest jobs.")
            complete = self._complete_checkpoint(archive.path / "checkpoints", plan.workload)
            directory = complete.path / checkpoints.SHARD_DIRECTORIES[plan.workload][0]
            paths = [override_text(item) for item in plan.overrides if override_key(item).endswith(ADAPTER_PATH)]
            adapter = paths[-1] if paths and paths[-1] != "null" else ""
            return MergeRequest(
                label=f"{where}@{complete.step}",
                step=complete.step,
                code_path=snapshot_with_merger(plan.code_path, self.shared_root),
                code_id=plan.code_id,
                checkpoint=str(directory),
                hf_home=str(self.shared_root / HF_HOME_DIR),
                size_bytes=shard_bytes(directory),
                adapter=adapter,
            )
        except UnreadableError as error:
            raise StagingError(where, f"cannot be read: {error}.", "Choose another job.") from error

    def _complete_checkpoint(self, directory: Path, workload: str) -> checkpoints.Checkpoint:
        where, problems = f"{CHECKPOINT_PREFIX}{self.job}", []
        for checkpoint in checkpoints.saved_checkpoints(directory, workload):
            if self.step in (None, checkpoint.step):
                if not checkpoint.problem or checkpoint.is_model:
                    return checkpoint
                problems.append(checkpoint.problem)
        if self.step is not None and not problems:
            raise StagingError(where, f"has no checkpoint of step {self.step}.", f"{STATUS_REMEDY}.")
        why = "; ".join(problems) or "it saved none"
        raise StagingError(where, f"has no complete checkpoint: {why}.", f"{STATUS_REMEDY}.")


def snapshot_with_merger(code_path: str, shared_root: Path) -> str:
    """Returns `code_path`, the snapshot of a job. Raises StagingError if it is elsewhere, or has no model_merger."""
    # Jobs can write anything into their plans.
    if not is_under_root(code_path, str(shared_root)):
        raise StagingError(f'code_path "{code_path}"', f"is not below {shared_root}.", "Choose another job.")
    if not Path(code_path, "verl", "model_merger", "__main__.py").is_file():
        text = "has no verl/model_merger/."
        raise StagingError(code_path, text, "Stage the snapshot of the job again; another release is not used instead.")
    return code_path


def shard_bytes(directory: Path) -> int:
    """The size of the weights. Raises StagingError if they are missing, or not written by FSDP."""
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


def make_plain_files(directory: Path) -> None:
    """Makes the files of a merged model readable by all users. Raises StagingError for links and special files."""
    (directory / MANIFEST).unlink(missing_ok=True)
    for name in files_below(directory):
        if not stat.S_ISREG((directory / name).lstat().st_mode):
            problem = f"{name} is a link or a special file, which a model has not."
            raise StagingError(directory, problem, "Nothing was staged. Look at the code of the job's snapshot.")
        # safetensors writes mode 0600.
        (directory / name).chmod(0o644)
