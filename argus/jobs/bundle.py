# SPDX-License-Identifier: Apache-2.0
"""What may be in a bundle, the compressed tar with which `fetch` copies an archive from a node to the controller.

Jobs can write to archives, also while one is packed: so a bundle has regular files and nothing else, with limits on
their number, sizes and names. `bundle_packing` applies these rules in the node, `bundle_unpacking` on the controller.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..archive.archive import DIRECTORIES, STEWARD_HEARTBEAT
from ..archive.samples import DIRECTORY as SAMPLES
from ..common.text import size_text
from ..io.reading import MIB

# The page of a job. It is not in a bundle: a job may have changed it, so the controller makes it anew.
PAGE = "report.html"
# The list of all jobs, beside the archives.
INDEX = "index.html"
# The entries of an archive that are fetched. Others, such as an ansible.cfg, could affect people on the controller.
ROOT_ENTRIES = frozenset((*DIRECTORIES, SAMPLES, STEWARD_HEARTBEAT, "heartbeat.json", "status.json", "events.jsonl"))
# The maximum sizes of one file and of all files together, without checkpoints and with them.
MAX_FILE_MIB, MAX_TOTAL_MIB = 2 << 10, 8 << 10
MAX_CHECKPOINT_FILE_MIB, MAX_CHECKPOINT_TOTAL_MIB = 64 << 10, 4 << 20
MAX_FILES = 200_000
# The maximum number of parts of a path, and its maximum length.
MAX_LEVELS = 32
MAX_PATH_BYTES = 1024
# The overhead of a file in a bundle: two headers, its path and the rest of a block.
HEADER_BYTES = 4096
# The maximum length of a file's name in a message.
MAX_NAME_CHARS = 300
DIRECTORY_MODE, FILE_MODE = 0o750, 0o640
# The latest modification time that a tar header can hold.
MAX_MTIME = (1 << 33) - 1


class BundleError(Exception):
    """A bundle cannot be unpacked. The message is for people."""


@dataclass(frozen=True)
class Limits:
    """The maximum sizes in a bundle, in bytes."""

    # Of one file, and of all files together.
    file: int
    total: int

    @property
    def bundle(self) -> int:
        """The maximum size of the bundle itself: with headers, and with files that cannot be compressed."""
        return self.total + self.total // 1000 + MAX_FILES * HEADER_BYTES


def bundle_limits(checkpoints: bool) -> Limits:
    """The limits of a bundle, with or without checkpoints."""
    file, total = (MAX_CHECKPOINT_FILE_MIB, MAX_CHECKPOINT_TOTAL_MIB) if checkpoints else (MAX_FILE_MIB, MAX_TOTAL_MIB)
    return Limits(file * MIB, total * MIB)


class Contents:
    """The number and the size of the files in a bundle so far."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.size = self.files = 0

    def add(self, size: int) -> str:
        """Count a file of this size. Returns why it cannot be in the bundle; empty if it can."""
        if size > self.limits.file:
            return f"it has {size_text(size)}, more than {size_text(self.limits.file)}"
        if self.size + size > self.limits.total:
            return f"with its {size_text(size)}, all files would have more than {size_text(self.limits.total)}"
        if self.files >= MAX_FILES:
            return f"there are more than {MAX_FILES} files"
        self.size += size
        self.files += 1
        return ""


def name_problem(name: str) -> str:
    """Why the name of a file in a bundle, its relative path, is refused; empty if it is allowed."""
    parts = name.split("/")
    if not name or name.startswith("/") or {"", ".", ".."} & set(parts):
        return "its name leads elsewhere"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    # Line ends, control sequences, and characters that change the direction of text.
    if not name.isprintable():
        return "its name has characters that cannot be shown"
    if len(parts) > MAX_LEVELS:
        return f"it is more than {MAX_LEVELS} levels deep"
    if size > MAX_PATH_BYTES or any(len(part.encode()) > 255 for part in parts):
        return f"its name has more than {MAX_PATH_BYTES} bytes, or 255 in one part"
    return ""


def printable_name(name: str) -> str:
    """The name of a file as a message shows it: a job may have put control characters into it."""
    beginning = name if len(name) <= MAX_NAME_CHARS else f"{name[:MAX_NAME_CHARS]}..."
    return beginning if beginning.isprintable() else ascii(beginning)
