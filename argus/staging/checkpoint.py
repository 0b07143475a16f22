# SPDX-License-Identifier: Apache-2.0
"""A job's checkpoint as the source of a model, which verl's own model_merger writes in the format of transformers."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ..archive import checkpoints
from ..archive.archive import Archive
from ..common.shared_root import HF_HOME, JOBS_DIR, under_root
from ..common.text import printable
from ..io.hydra import override_key, override_text
from ..io.reading import UnreadableError, list_directory
from .files import files_below
from .manifest import MANIFEST, Manifest
from .options import LOWERCASE_NAME, StagingError
from .progress import Progress
from .ray_merge import MergeRequest, merge_on_worker
from .store import BuildResult

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
                hf_home=str(self.shared_root / HF_HOME),
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
    if not under_root(code_path, str(shared_root)):
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
