# SPDX-License-Identifier: GPL-3.0-or-later
"""The nodes that get no new work, by Ray's ids, as the head remembers them.

Ray places nothing on such a node, and neither its state API nor its cluster status says so: its resources look free. A
node that is started again has another id, so an entry never outlives its meaning.

An entry has the attempts that the node's removal ends: Ray tells their jobs only that the node is lost.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from ..io.reading import UnreadableError, read_json
from ..io.schema import MalformedError, parse

# Beside the registry's entries, none of which begins with a dot. A file for each node.
PREFIX = ".draining-"


@dataclass(frozen=True)
class Removal:
    """A node that is removed although jobs use it: its name, and Ray's ids of the attempts that end with it."""

    node: str
    attempts: tuple[str, ...]


def remember(node_id: str, directory: str | Path, removal: Removal | None = None) -> None:
    """Record that a node gets no new work, and which attempts its removal ends. Raises OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_TRUNC if removal else 0)
    with os.fdopen(os.open(Path(directory) / f"{PREFIX}{node_id}", flags, 0o640), "w") as entry:
        entry.write(json.dumps(asdict(removal)) if removal else "")


def removed_under(attempt: str, directory: str | Path) -> str:
    """The name of the node whose removal ended an attempt, or ""."""
    for node_id in draining(directory):
        with contextlib.suppress(OSError, UnreadableError, MalformedError):
            removal = parse(Removal, read_json(Path(directory) / f"{PREFIX}{node_id}"))
            if attempt in removal.attempts:
                return removal.node
    return ""


def draining(directory: str | Path) -> frozenset[str]:
    """The ids of the nodes that get no new work; none where there is no registry."""
    return frozenset(path.name.removeprefix(PREFIX) for path in Path(directory).glob(f"{PREFIX}*"))


def forget_all_but(node_ids: frozenset[str], directory: str | Path) -> None:
    """Remove the entries of nodes that Ray does not know any more."""
    for node_id in draining(directory) - node_ids:
        with contextlib.suppress(OSError):
            (Path(directory) / f"{PREFIX}{node_id}").unlink()
