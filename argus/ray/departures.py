# SPDX-License-Identifier: Apache-2.0
"""What the head remembers of nodes that leave: which were lost under jobs, and which are drained or removed.

Both are files in the registry, a directory that only the head sees. Lost nodes are recorded by name, because the same
machine comes back as another node of Ray. Drained nodes are recorded by Ray's id: a node that is started again has
another id, so an entry never outlives its meaning. Ray itself does not tell: in its state API and its cluster status,
the resources of a drained node look free.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ..io.reading import UnreadableError, read_json
from ..io.schema import MalformedError, parse

# The prefixes of the files, which no entry of the registry has: an empty one for each job and node that was lost under
# it, and one for each drained node.
LOST_PREFIX, DRAINING_PREFIX = ".lost-", ".draining-"
# A node counts as bad if it was lost under so many jobs within so many seconds.
MIN_LOST_JOBS, LOSS_MEMORY_SECONDS = 2, 86400.0


@dataclass(frozen=True)
class Removal:
    """A node that is removed although jobs use it. Recorded because Ray only reports such a node as lost."""

    node: str  # the name of the node
    attempts: tuple[str, ...]  # Ray's ids of the attempts that end with it


def remember_loss(directory: str | Path, node: str, submission_id: str, moment: float) -> None:
    """Record that a node was lost under a job. Removes the entries that are too old to count."""
    with contextlib.suppress(OSError):
        for entry, _node, _job in loss_files(directory):
            if entry.stat().st_mtime < moment - LOSS_MEMORY_SECONDS:
                entry.unlink()
        (Path(directory) / f"{LOST_PREFIX}{submission_id}@{node}").touch(0o640)


def bad_nodes(directory: str | Path, moment: float) -> dict[str, list[str]]:
    """The names of the nodes that count as bad, with the jobs under which they were lost; none without a registry."""
    jobs: dict[str, list[str]] = {}
    with contextlib.suppress(OSError):
        for entry, node, job in loss_files(directory):
            if entry.stat().st_mtime >= moment - LOSS_MEMORY_SECONDS:
                jobs.setdefault(node, []).append(job)
    return {node: sorted(lost) for node, lost in sorted(jobs.items()) if len(lost) >= MIN_LOST_JOBS}


def forget_losses(directory: str | Path, node: str) -> None:
    """Forget the losses of a node that a person has taken out."""
    with contextlib.suppress(OSError):
        for entry, of_node, _job in loss_files(directory):
            if of_node == node:
                entry.unlink()


def loss_sentences(nodes: Mapping[str, Sequence[str]]) -> list[str]:
    return [f"{node} was lost under {len(jobs)} jobs within a day: {', '.join(jobs)}." for node, jobs in nodes.items()]


def loss_files(directory: str | Path) -> Iterator[tuple[Path, str, str]]:
    """The file, the node and the job of each recorded loss."""
    for path in list(Path(directory).glob(f"{LOST_PREFIX}*")):
        job, _at, node = path.name.removeprefix(LOST_PREFIX).partition("@")
        yield path, node, job


def remember_draining(node_id: str, directory: str | Path, removal: Removal | None = None) -> None:
    """Record that a node gets no new work, and in `removal` which attempts end with it. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_TRUNC if removal else 0)
    with os.fdopen(os.open(Path(directory) / f"{DRAINING_PREFIX}{node_id}", flags, 0o640), "w") as entry:
        entry.write(json.dumps(asdict(removal)) if removal else "")


def node_removed_under(attempt: str, directory: str | Path) -> str:
    """The name of the node whose removal ended an attempt, or ""."""
    for node_id in draining_nodes(directory):
        with contextlib.suppress(OSError, UnreadableError, MalformedError):
            removal = parse(Removal, read_json(Path(directory) / f"{DRAINING_PREFIX}{node_id}"))
            if attempt in removal.attempts:
                return removal.node
    return ""


def draining_nodes(directory: str | Path) -> frozenset[str]:
    """Ray's ids of the nodes that get no new work; none without a registry."""
    return frozenset(path.name.removeprefix(DRAINING_PREFIX) for path in Path(directory).glob(f"{DRAINING_PREFIX}*"))


def forget_all_draining_but(node_ids: frozenset[str], directory: str | Path) -> None:
    """Remove the entries of all nodes but those that Ray still lists."""
    for node_id in draining_nodes(directory) - node_ids:
        with contextlib.suppress(OSError):
            (Path(directory) / f"{DRAINING_PREFIX}{node_id}").unlink()
