# SPDX-License-Identifier: Apache-2.0
"""Finds the checkpoints from which a job can resume, so that none fails after minutes of start-up; removes old ones."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..io.hydra import override_key, override_text
from ..io.reading import UnreadableError, list_directory, open_file, read_text

# verl/utils/checkpoint/fsdp_checkpoint_manager.py: one file per kind and rank.
SHARD_FILE = re.compile(r"(?P<kind>\w+)_world_size_(?P<size>[0-9]{1,6})_rank_(?P<rank>[0-9]{1,6})\.pt")
# FSDP writes this file even without shards. Training resumes from these kinds; schedule and seeds may start anew.
FSDP_FILE, RESUMED_KINDS = "fsdp_config.json", ("model", "optim")
STEP_NUMBER = re.compile(r"0|[1-9][0-9]{0,14}")
STEP_DIRECTORY = re.compile(rf"global_step_(?P<step>{STEP_NUMBER.pattern})")
# The most checkpoints that are checked, and the most numbers in a message: jobs choose the names of files.
MAX_INSPECTED, MAX_LISTED = 100, 16
MAX_TRACKER_BYTES = 64
# verl writes the step into this file after it has saved a checkpoint.
TRACKER_FILE = "latest_checkpointed_iteration.txt"
# The directory with the state of TransferQueue, written as .tmp and then renamed: transfer_queue/interface.py.
TRANSFER_QUEUE_DIRECTORY = "transfer_queue"
# The directories of the shards below global_step_<N>, by workload.
SHARD_DIRECTORIES = {"sft": ("",), "grpo": ("actor",), "ppo": ("actor", "critic")}
# verl's settings for the number of checkpoints to keep, by the directory of the shards.
KEEP_SETTINGS = {
    "": "trainer.max_ckpt_to_keep",
    "actor": "trainer.max_actor_ckpt_to_keep",
    "critic": "trainer.max_critic_ckpt_to_keep",
}


@dataclass(frozen=True)
class Checkpoint:
    """One ``global_step_<N>`` directory."""

    step: int
    path: Path
    # 0 if it has no shards, such as those of Megatron.
    world_size: int
    # Why no job can resume from it; "" if one can.
    problem: str
    # Whether the model is complete and only the state for resuming is missing, as with verl's `save_contents: [model]`.
    is_model: bool = False


def inspect(path: Path, workload: str) -> Checkpoint:
    """Check a checkpoint: every kind of shard needs one of every rank, and none may be truncated.

    path: `checkpoints/global_step_<N>` in an archive.
    """
    match = STEP_DIRECTORY.fullmatch(path.name)
    problems: list[str] = []
    sizes: set[int] = set()
    missing_kinds: set[str] = set()
    for part in SHARD_DIRECTORIES.get(workload, ("",)):
        try:
            problems += shard_problems(path / part, sizes, missing_kinds)
        except UnreadableError as error:
            problems.append(str(error))
    # verl can resume without this state, and then loses the samples that were in flight.
    queue = path / TRANSFER_QUEUE_DIRECTORY
    if queue.with_name(f"{queue.name}.tmp").exists() and not queue.exists():
        problems.append(f"{queue} is not complete")
    if len(sizes) > 1:
        problems.append(f"{path} has shards of {join_numbers(sorted(sizes), ' and ')} ranks")
    is_model = bool(missing_kinds) and not problems
    if missing_kinds:
        problems.append(f"{path} has no {' and no '.join(sorted(missing_kinds))} shards: no job resumes from it")
    step = int(match["step"]) if match else 0
    return Checkpoint(step, path, max(sizes, default=0), "; ".join(problems), is_model)


def shard_problems(directory: Path, sizes: set[int], missing_kinds: set[str]) -> Iterator[str]:
    """The problems of the shards in one directory.

    Adds the world sizes of the shards to `sizes`, and those of RESUMED_KINDS that are missing to `missing_kinds`.
    """
    names = list_directory(directory)
    shards = {}
    for file in names:
        match = SHARD_FILE.fullmatch(file)
        if match:
            shards[match["kind"], int(match["size"]), int(match["rank"])] = file
    # Other backends, such as Megatron, write other files, which cannot be checked: verl's tracker has to suffice.
    if not [file for file in names if not file.startswith(".")]:
        yield f"{directory} is empty"
    if shards or FSDP_FILE in names:
        missing_kinds |= set(RESUMED_KINDS) - {kind for kind, _size, _rank in shards}
    sizes |= {size for _kind, size, _rank in shards}
    for kind, size in sorted({(kind, size) for kind, size, _rank in shards}):
        missing = [rank for rank in range(size) if (kind, size, rank) not in shards]
        if missing:
            yield f"{directory} has no {kind} shard of rank {join_numbers(missing, ', ')} of {size}"
    for file in sorted(shards.values()):
        if not is_complete(directory / file):
            yield f"{directory / file} is truncated"


def is_complete(shard: Path) -> bool:
    """Whether a shard is not truncated. torch writes zip files, whose directory is at the end of the file."""
    try:
        with open_file(shard) as file:
            return zipfile.is_zipfile(file)
    except FileNotFoundError:
        return False


def join_numbers(numbers: list[int], separator: str) -> str:
    shown = [str(number) for number in numbers[:MAX_LISTED]]
    return separator.join([*shown, "…"] if len(numbers) > MAX_LISTED else shown)


def last_saved_step(directory: Path) -> int:
    """The step of the last checkpoint that verl has saved; -1 without one. directory: `checkpoints` in an archive."""
    try:
        text = read_text(directory / TRACKER_FILE, MAX_TRACKER_BYTES).strip()
    except (FileNotFoundError, UnreadableError):
        return -1
    return int(text) if STEP_NUMBER.fullmatch(text) else -1


def steps_in(directory: Path, last: float = math.inf) -> list[int]:
    """The steps that have a directory, up to the last one, newest first. Raises UnreadableError."""
    matches = map(STEP_DIRECTORY.fullmatch, list_directory(directory))
    return sorted((step for match in matches if match and (step := int(match["step"])) <= last), reverse=True)


def saved_checkpoints(directory: Path, workload: str) -> Iterator[Checkpoint]:
    """The checkpoints that verl has saved, newest first; later ones were interrupted while verl wrote them.

    directory: `checkpoints` in an archive. Raises UnreadableError.
    """
    for step in steps_in(directory, last_saved_step(directory))[:MAX_INSPECTED]:
        yield inspect(directory / f"global_step_{step}", workload)


def last_complete(directory: Path, workload: str) -> Checkpoint | None:
    return next((checkpoint for checkpoint in saved_checkpoints(directory, workload) if not checkpoint.problem), None)


def directory_bytes(directory: Path) -> int:
    """The size of all files below a directory. Links are not followed; files that vanish meanwhile do not count."""
    total = 0
    for parent, _directories, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(Path(parent, name)).st_size
    return total


class Retention:
    """Applies the job's checkpoint limit to all of its attempts; verl only knows the checkpoints of its own process."""

    def __init__(self, directory: Path, workload: str, overrides: Sequence[str]) -> None:
        """directory: `checkpoints` in an archive, before the current attempt saves anything."""
        self.directory, self.workload, self.last_saved_step = directory, workload, last_saved_step(directory)
        # How many checkpoints to keep, by the directory of the shards; 0 for all.
        self.limits = {part: keep_limit(overrides, KEEP_SETTINGS[part]) for part in SHARD_DIRECTORIES.get(workload, ())}

    def prune(self) -> None:
        """Remove what is too old, if the attempt has saved another checkpoint. Raises OSError and UnreadableError."""
        step = last_saved_step(self.directory)
        if step <= self.last_saved_step:
            return
        self.last_saved_step = step
        # The attempt may need the checkpoint it resumed from until it has a complete one of its own.
        saved = inspect(self.directory / f"global_step_{step}", self.workload)
        if saved.problem and not saved.is_model:
            return
        steps = steps_in(self.directory, step)
        for part, limit in self.limits.items():
            # verl removes the same, and leaves the state of the data loader.
            paths = [self.directory / f"global_step_{step}" / part for step in steps]
            for path in [path for path in paths if os.path.lexists(path)][limit:] if limit else ():
                shutil.rmtree(path, ignore_errors=True)


def keep_limit(overrides: Sequence[str], key: str) -> int:
    """The number of checkpoints that a job keeps; 0 for all. The last override counts, also one of a parent key."""
    values = [override_text(item) for item in overrides if override_key(item) in (key, key.partition(".")[0])]
    return int(values[-1]) if values and STEP_NUMBER.fullmatch(values[-1]) else 0
