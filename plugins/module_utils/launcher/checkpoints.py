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

# verl/utils/checkpoint/fsdp_checkpoint_manager.py: one file per kind and rank.
SHARD = re.compile(r"(?P<kind>\w+)_world_size_(?P<size>\d+)_rank_(?P<rank>\d+)\.pt")
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
    """Check the shards: every kind needs one of every rank, and none may be truncated."""
    step = int(path.name.rpartition("_")[2])
    problems: list[str] = []
    sizes: set[int] = set()
    for part in PARTS[workload]:
        shards = {}
        for file in (path / part).glob("*.pt"):
            match = SHARD.fullmatch(file.name)
            if match:
                shards[match["kind"], int(match["size"]), int(match["rank"])] = file
        # Other backends, such as Megatron, write other files, which cannot be checked: verl's tracker has to suffice.
        if not shards and not any((path / part).glob("*")):
            problems.append(f"{path / part} is empty")
        sizes |= {size for _kind, size, _rank in shards}
        for kind, size in sorted({(kind, size) for kind, size, _rank in shards}):
            missing = [rank for rank in range(size) if (kind, size, rank) not in shards]
            if missing:
                problems.append(f"{path / part} has no {kind} shard of rank {', '.join(map(str, missing))} of {size}")
        # torch writes zip files, whose directory is at their end: a truncated file has none.
        problems += [f"{file} is truncated" for file in sorted(shards.values()) if not zipfile.is_zipfile(file)]
    if len(sizes) > 1:
        problems.append(f"{path} has shards of {' and '.join(map(str, sorted(sizes)))} ranks")
    return Checkpoint(step, path, max(sizes, default=0), "; ".join(problems))


def finished(directory: Path, workload: str) -> Iterator[Checkpoint]:
    """The checkpoints that verl has saved, newest first; later ones were interrupted while verl wrote them."""
    try:
        last = int((directory / TRACKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    names = ((path.name.rpartition("_")[2], path) for path in directory.glob("global_step_*"))
    paths = {int(name): path for name, path in names if name.isdigit()}
    for step in sorted(paths, reverse=True):
        if step <= last:
            yield inspect(paths[step], workload)


def last_complete(directory: Path, workload: str) -> Checkpoint | None:
    """The newest checkpoint that a job can resume from."""
    return next((checkpoint for checkpoint in finished(directory, workload) if not checkpoint.problem), None)
