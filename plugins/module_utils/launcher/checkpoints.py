# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checkpoints: which of a job's are complete, so that a resume does not fail after minutes of start-up."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# verl/utils/checkpoint/fsdp_checkpoint_manager.py: one file a kind and rank.
SHARD = re.compile(r"(?P<kind>\w+)_world_size_(?P<size>\d+)_rank_(?P<rank>\d+)\.pt")
# Written by verl when a checkpoint is complete in its eyes.
TRACKER = "latest_checkpointed_iteration.txt"
# Where the shards lie below global_step_<N>, by workload.
PARTS = {"sft": ("",), "grpo": ("actor",), "ppo": ("actor", "critic")}


@dataclass(frozen=True)
class Checkpoint:
    """One ``global_step_<N>`` directory; `problem` is empty when it can be resumed from."""

    step: int
    path: Path
    world_size: int
    problem: str


def inspect(path: Path, workload: str) -> Checkpoint:
    """Look at every shard: all ranks of every kind, and none cut off."""
    step = int(path.name.rpartition("_")[2])
    problems: list[str] = []
    sizes: set[int] = set()
    for part in PARTS[workload]:
        shards = {}
        for file in (path / part).glob("*.pt"):
            match = SHARD.fullmatch(file.name)
            if match:
                shards[match["kind"], int(match["size"]), int(match["rank"])] = file
        # Other backends, such as Megatron, write other files: verl's own word has to do there.
        if not shards and not any((path / part).glob("*")):
            problems.append(f"{path / part} is empty")
        sizes |= {size for _kind, size, _rank in shards}
        for kind, size in sorted({(kind, size) for kind, size, _rank in shards}):
            missing = [rank for rank in range(size) if (kind, size, rank) not in shards]
            if missing:
                problems.append(f"{path / part} has no {kind} of rank {', '.join(map(str, missing))} of {size}")
        # torch writes zip files, whose directory is their end: one that was cut off has none.
        problems += [f"{file} is cut off" for file in sorted(shards.values()) if not zipfile.is_zipfile(file)]
    if len(sizes) > 1:
        problems.append(f"{path} has shards of {' and '.join(map(str, sorted(sizes)))} ranks")
    return Checkpoint(step, path, max(sizes, default=0), "; ".join(problems))


def finished(directory: Path, workload: str) -> Iterator[Checkpoint]:
    """The checkpoints that verl had finished, newest first; those after it were cut off while they were written."""
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
    """The newest checkpoint that can be resumed from."""
    return next((checkpoint for checkpoint in finished(directory, workload) if not checkpoint.problem), None)
