# SPDX-License-Identifier: Apache-2.0
"""Nodes that leave: lost under jobs, drained or removed, or taken away together with the machines of the cluster.

Lost and drained nodes have files in the registry, a directory that only the head sees. Lost ones are recorded by name,
because the same machine comes back as another node of Ray. Drained ones are recorded by Ray's id: a node that is
started again has another id, so an entry never outlives its meaning. Ray itself does not tell: in its state API and its
cluster status, the resources of a drained node look free.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
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


# The end of a cluster whose machines are taken away, as with a Slurm allocation, in seconds since the epoch.

# The variable with the time at which jobs are stopped, in the environment of every process of a node.
STOP_AT_VARIABLE = "ARGUS_VERL_STOP_AT"
# The variable with the time before which verl's trainer of reinforcement learning saves a checkpoint
# (verl/utils/checkpoint/checkpoint_manager.py:should_save_ckpt_esi).
EXPIRATION_VARIABLE = "MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP"


def ending_environment(ends_at: float | None, minutes: float) -> dict[str, str]:
    """The variables of nodes whose machines are taken away at a time. minutes: how long before it, jobs are stopped."""
    if ends_at is None:
        return {}
    at = f"{ends_at - minutes * 60:.0f}"
    return {STOP_AT_VARIABLE: at, EXPIRATION_VARIABLE: at}


def read_stop_at() -> float | None:
    """When jobs on this node are stopped, from its environment; None if its machine stays."""
    try:
        moment = float(os.environ.get(STOP_AT_VARIABLE, ""))
    except ValueError:
        return None
    return moment if math.isfinite(moment) else None


def moment_text(at: float) -> str:
    return time.strftime("%H:%M UTC on %Y-%m-%d", time.gmtime(at))


def ending_problem(now: float) -> str:
    """Why jobs on this node are stopped now, or ""."""
    at = read_stop_at()
    if at is None or now < at:
        return ""
    return f"the cluster's machines are about to be taken away: their jobs are stopped at {moment_text(at)}"


# How Ray's head finds out that a node has ended: it calls each raylet, and after several calls in a row without an
# answer the node is dead. A raylet that was killed refuses the call at once, so a short period finds it within seconds.
# One that is only busy, or stopped while its machine writes a checkpoint, answers late, so the long timeout spares it:
# measured with Ray 2.60, a raylet that was stopped for 65 s lived on, and so did one whose network was cut for 40 s.
HEALTH_CHECK_INTERVAL_SECONDS = 1
HEALTH_CHECK_TIMEOUT_SECONDS = 15
MAX_FAILED_HEALTH_CHECKS = 5

# The time until the head notices that the processes of a node were killed, on a busy machine. A lost machine or network
# takes MAX_FAILED_HEALTH_CHECKS * (HEALTH_CHECK_INTERVAL_SECONDS + HEALTH_CHECK_TIMEOUT_SECONDS).
DEATH_NOTICE_SECONDS = 20.0


def health_environment() -> dict[str, str]:
    """The variables that give Ray's head these settings."""
    return {
        "RAY_health_check_period_ms": str(1000 * HEALTH_CHECK_INTERVAL_SECONDS),
        "RAY_health_check_timeout_ms": str(1000 * HEALTH_CHECK_TIMEOUT_SECONDS),
        "RAY_health_check_failure_threshold": str(MAX_FAILED_HEALTH_CHECKS),
    }
