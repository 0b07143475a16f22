# SPDX-License-Identifier: GPL-3.0-or-later
"""A checkpoint of a job as a model: verl's own model_merger writes it in the format of transformers, on a worker."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ..archive import checkpoints
from ..archive.archive import Archive
from ..common.shared_root import HF_HOME, JOBS, under_root
from ..common.text import printable
from ..io.hydra import override_key, override_text
from ..io.reading import UnreadableError, list_directory
from .errors import StagingError
from .files import files_below
from .lock import Progress
from .manifest import MANIFEST, Manifest
from .merge_worker import MergeRequest, merge_on_worker
from .options import NAME
from .store import Built

# A submission id is a NAME.
SOURCE = re.compile(rf"job:(?P<job>{NAME.pattern})(?:@(?P<step>0|[1-9][0-9]{{0,14}}))?")
PREFIX = "job:"
STATUS = "status.yml shows the checkpoints of a job"
SHOWN_LINES = 12
# What the job began with: verl saves the rank and alpha of an adapter, and nothing else of its configuration.
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
        """The same with its step: a running job saves further ones."""
        return self if self.step is not None else replace(self, step=self.find().step)

    def size(self) -> int:
        return self.find().size

    def differs(self, manifest: Manifest) -> str:
        prefix, step = f"{PREFIX}{self.job}@", self.step
        if step is None and manifest.source.startswith(prefix):
            # The model does not need the archive any more.
            with suppress(StagingError):
                step = self.find().step
            if step is None:
                return ""
        if manifest.source == f"{prefix}{step}":
            return ""
        return f"contains {manifest.source}, not {PREFIX}{self.job}{'' if step is None else f'@{step}'}."

    def fill(self, directory: Path, progress: Progress, manifest: Manifest | None) -> Built:
        found = self.find()
        progress.begin(f"waiting for a worker to merge {found.label}")
        code, output = self.merge(replace(found, target=directory), progress)
        if code:
            lines = [printable(line, lines=False) for line in output.strip().splitlines()[-SHOWN_LINES:]]
            what = "\n".join([f"could not be merged by verl's model_merger (exit code {code}):", *lines, ""])
            raise StagingError(found.label, what, "The last line tells why. Nothing was staged.")
        settle(directory)
        return Built({"source": found.label, "job": self.job, "step": found.step, "code_id": found.code_id})

    def find(self) -> MergeRequest:
        """The checkpoint, without a target; an error if there is none that can be merged."""
        where = f"{PREFIX}{self.job}"
        archive = Archive(self.shared_root / JOBS / self.job)
        try:
            plan = archive.plan()
            if plan is None or plan.workload not in checkpoints.PARTS:
                raise StagingError(where, f"there is no job {self.job}.", "status.yml lists the latest jobs.")
            good = self._complete(archive.path / "checkpoints", plan.workload)
            directory = good.path / checkpoints.PARTS[plan.workload][0]
            paths = [override_text(each) for each in plan.overrides if override_key(each).endswith(ADAPTER_PATH)]
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
        where, problems = f"{PREFIX}{self.job}", []
        for each in checkpoints.finished(directory, workload):
            if self.step in (None, each.step):
                if not each.problem or each.is_model:
                    return each
                problems.append(each.problem)
        if self.step is not None and not problems:
            raise StagingError(where, f"has no checkpoint of step {self.step}.", f"{STATUS}.")
        why = "; ".join(problems) or "it saved none"
        raise StagingError(where, f"has no complete checkpoint: {why}.", f"{STATUS}.")


def merger_of(code_path: str, shared_root: Path) -> str:
    """The snapshot of a job, which has to have a model_merger. A job can write into its plan whatever it likes."""
    if not under_root(code_path, str(shared_root)):
        raise StagingError(f'code_path "{code_path}"', f"is not below {shared_root}.", "Choose another job.")
    if not Path(code_path, "verl", "model_merger", "__main__.py").is_file():
        what = "has no verl/model_merger/."
        raise StagingError(code_path, what, "Stage the snapshot of the job again; another release is not used instead.")
    return code_path


def shard_bytes(directory: Path) -> int:
    """The size of the weights; an error if another backend than FSDP has written them, or a part is missing."""
    there = set(list_directory(directory))
    if "fsdp_config.json" not in there or "huggingface" not in there:
        missing = " and ".join(sorted({"fsdp_config.json", "huggingface"} - there))
        what = f"has no {missing}: it was not saved by verl's FSDP, and only that can be merged."
        raise StagingError(directory, what, "Convert it with the tools of its backend, and stage the directory.")
    size = sum((directory / file).lstat().st_size for file in there if file.startswith("model_world_size_"))
    if not size:
        what = "has no shards of the model, as save_contents without model saves it."
        raise StagingError(directory, what, f"With hf_model, {directory}/huggingface is a model: stage that directory.")
    return size


def settle(directory: Path) -> None:
    """What the code of a job has written must be plain files, which everybody who reads models can read."""
    (directory / MANIFEST).unlink(missing_ok=True)
    for name in files_below(directory):
        if not stat.S_ISREG((directory / name).lstat().st_mode):
            what = f"{name} is a link or a special file, which a model has not."
            raise StagingError(directory, what, "Nothing was staged. Look at the code of the job's snapshot.")
        # safetensors writes mode 0600.
        (directory / name).chmod(0o644)
