# SPDX-License-Identifier: Apache-2.0
"""Receives files of the controller: a tar that follows the request, unpacked in a directory beside the item."""

from __future__ import annotations

import contextlib
import re
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from .files import check_space, remove_tree, write_file
from .options import StagingError, as_staging_errors
from .source_tree import content_identity, is_plain_path

# The name of the directory of files that arrive for an item. It is under the shared root, because the node itself may
# lack the space. name: of the item.
INBOX_NAME = re.compile(r"\.(?P<name>.+)\.upload")


class FilesNeededError(StagingError):
    """The content of a file of the controller is needed, for the item or to tell whether the file has changed."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "has to be sent.", "Send it with the request.")


@dataclass(frozen=True)
class UploadFile:
    """A file on the controller."""

    path: str
    size: int  # in bytes
    mtime_ns: int = 0
    sha256: str = ""  # empty as long as the file was not read

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    @property
    def identity(self) -> list[object]:
        """What the manifest has of the file: not the path, because that differs between controllers."""
        return [self.name, self.size, self.mtime_ns, self.sha256]

    def equals(self, before: Sequence[object]) -> bool:
        """Whether the file is the one with this identity. Raises FilesNeededError if only its content can tell."""
        name, size, mtime_ns, sha256 = before
        if (name, size) != (self.name, self.size):
            return False
        if self.sha256:
            return sha256 == self.sha256
        if mtime_ns != self.mtime_ns:
            raise FilesNeededError(self.path)
        return True


@dataclass(frozen=True)
class Attachment:
    """The tar that follows a request, as the controller announces it."""

    identity: str  # the content_identity of its files
    size: int  # the sum of the sizes of its files, in bytes


def inbox(target: Path) -> Path:
    return target.with_name(f".{target.name}.upload")


def receive(stream: BinaryIO, attachment: Attachment, target: Path) -> Path:
    """Unpacks a tar for an item in a new directory, and returns that. Raises StagingError for unannounced files."""
    parent, left_bytes = inbox(target), attachment.size
    hashes: dict[str, str] = {}
    remedy = "Stage it again when nothing writes to them."
    problem = StagingError(target, "did not get its files as they were announced.", remedy)
    with as_staging_errors(parent, "uploaded"), contextlib.ExitStack() as undo:
        check_space(parent, left_bytes)
        parent.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(dir=parent))
        undo.callback(remove_received, directory)
        try:
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for member in archive:
                    left_bytes -= member.size
                    if not member.isreg() or not is_plain_path(member.name) or left_bytes < 0:
                        raise StagingError(repr(member.name), "is no file that was announced.", "Stage it again.")
                    content = cast(BinaryIO, archive.extractfile(member))
                    hashes[member.name] = write_file(directory / member.name, content)
        except tarfile.TarError as error:
            raise problem from error
        if content_identity(hashes) != attachment.identity:
            raise problem
        undo.pop_all()
        return directory


def remove_received(directory: Path) -> None:
    """Removes a directory that `receive` has returned."""
    remove_tree(directory)
    # Another upload for the same item may still use the parent directory.
    with contextlib.suppress(OSError):
        directory.parent.rmdir()
