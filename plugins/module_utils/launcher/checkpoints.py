# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checkpoints: which of a job's are complete, so that a job does not fail to resume after minutes of start-up."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .reading import UnreadableError, list_directory, open_file, read_text

# verl/utils/checkpoint/fsdp_checkpoint_manager.py: one file per kind and rank.
SHARD = re.compile(r"(?P<kind>\w+)_world_size_(?P<size>[0-9]{1,6})_rank_(?P<rank>[0-9]{1,6})\.pt")
NUMBER = re.compile(r"0|[1-9][0-9]{0,14}")
STEP = re.compile(rf"global_step_(?P<step>{NUMBER.pattern})")
# The names of files decide how long this takes, and jobs decide on the names.
INSPECTED, LISTED = 100, 16
TRACKER_BYTES = 64
# verl writes the step here after it has saved a checkpoint.
TRACKER = "latest_checkpointed_iteration.txt"
# The directories of the shards below global_step_<N>, by workload.
PARTS = {"sft": ("",), "grpo": ("actor",), "ppo": ("actor", "critic")}


@dataclass(frozen=True)
class Checkpoint:
    """One ``global_step_<N>`` directory; `problem` is empty if a job can resume from it."""

    step: int
    path: Path
    world_size: int
    problem: str


def inspect(path: Path, workload: str) -> Checkpoint:
    """Check the shards: every kind needs one of every rank, and none may be truncated.

    path: `checkpoints/global_step_<N>` in an archive.
    """
    match = STEP.fullmatch(path.name)
    problems: list[str] = []
    sizes: set[int] = set()
    for part in PARTS.get(workload, ("",)):
        try:
            problems += part_problems(path / part, path.parents[2], sizes)
        except UnreadableError as error:
            problems.append(str(error))
    if len(sizes) > 1:
        problems.append(f"{path} has shards of {listed(sorted(sizes), ' and ')} ranks")
    return Checkpoint(int(match["step"]) if match else 0, path, max(sizes, default=0), "; ".join(problems))


def part_problems(directory: Path, jobs: Path, sizes: set[int]) -> Iterator[str]:
    """The problems of the shards in one directory; adds the numbers of ranks that they are for to `sizes`."""
    name = str(directory.relative_to(jobs))
    found = list_directory(jobs, name)
    shards = {}
    for file in found:
        match = SHARD.fullmatch(file)
        if match:
            shards[match["kind"], int(match["size"]), int(match["rank"])] = file
    # Other backends, such as Megatron, write other files, which cannot be checked: verl's tracker has to suffice.
    if not [file for file in found if not file.startswith(".")]:
        yield f"{directory} is empty"
    sizes |= {size for _kind, size, _rank in shards}
    for kind, size in sorted({(kind, size) for kind, size, _rank in shards}):
        missing = [rank for rank in range(size) if (kind, size, rank) not in shards]
        if missing:
            yield f"{directory} has no {kind} shard of rank {listed(missing, ', ')} of {size}"
    for file in sorted(shards.values()):
        if not is_complete(jobs, f"{name}/{file}"):
            yield f"{directory / file} is truncated"


def is_complete(jobs: Path, shard: str) -> bool:
    """Whether a shard is whole. torch writes zip files, whose directory is at their end: a truncated file has none."""
    try:
        with open_file(jobs, shard) as file:
            return zipfile.is_zipfile(file)
    except FileNotFoundError:
        return False


def listed(numbers: list[int], separator: str) -> str:
    shown = [str(number) for number in numbers[:LISTED]]
    return separator.join([*shown, "…"] if len(numbers) > LISTED else shown)


def finished(directory: Path, workload: str) -> Iterator[Checkpoint]:
    """The checkpoints that verl has saved, newest first; later ones were interrupted while verl wrote them.

    directory: `checkpoints` in an archive. Raises UnreadableError.
    """
    jobs = directory.parents[1]
    name = str(directory.relative_to(jobs))
    try:
        text = read_text(jobs, f"{name}/{TRACKER}", TRACKER_BYTES).strip()
    except (FileNotFoundError, UnreadableError):
        return
    if not NUMBER.fullmatch(text):
        return
    steps = [int(match["step"]) for match in map(STEP.fullmatch, list_directory(jobs, name)) if match]
    for step in sorted((step for step in steps if step <= int(text)), reverse=True)[:INSPECTED]:
        yield inspect(directory / f"global_step_{step}", workload)


def last_complete(directory: Path, workload: str) -> Checkpoint | None:
    """The newest checkpoint that a job can resume from."""
    return next((checkpoint for checkpoint in finished(directory, workload) if not checkpoint.problem), None)
