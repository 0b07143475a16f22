# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes that were lost under several jobs lately, by name: the same machine comes back as another node of Ray."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

# Beside the registry's entries, none of which begins with a dot. An empty file for each job and node; no id has an @.
PREFIX = ".lost-"
# A node counts as bad after so many jobs within so many seconds.
JOBS, SECONDS = 2, 86400.0


def remember(directory: str | Path, node: str, submission_id: str, moment: float) -> None:
    """Record that a node was lost under a job. Entries that do not count any more are removed."""
    with contextlib.suppress(OSError):
        for entry, _node, _job in entries(directory):
            if entry.stat().st_mtime < moment - SECONDS:
                entry.unlink()
        (Path(directory) / f"{PREFIX}{submission_id}@{node}").touch(0o640)


def bad_nodes(directory: str | Path, moment: float) -> dict[str, list[str]]:
    """The nodes that count as bad, with the jobs under which they were lost; none where there is no registry."""
    jobs: dict[str, list[str]] = {}
    with contextlib.suppress(OSError):
        for entry, node, job in entries(directory):
            if entry.stat().st_mtime >= moment - SECONDS:
                jobs.setdefault(node, []).append(job)
    return {node: sorted(lost) for node, lost in sorted(jobs.items()) if len(lost) >= JOBS}


def forget(directory: str | Path, node: str) -> None:
    """Forget the losses of a node that a person has taken out."""
    with contextlib.suppress(OSError):
        for entry, of_node, _job in entries(directory):
            if of_node == node:
                entry.unlink()


def sentences(nodes: Mapping[str, Sequence[str]]) -> list[str]:
    return [f"{node} was lost under {len(jobs)} jobs within a day: {', '.join(jobs)}." for node, jobs in nodes.items()]


def entries(directory: str | Path) -> Iterator[tuple[Path, str, str]]:
    """The files, with the node and the job of each."""
    for path in list(Path(directory).glob(f"{PREFIX}*")):
        job, _at, node = path.name.removeprefix(PREFIX).partition("@")
        yield path, node, job
