# SPDX-License-Identifier: Apache-2.0
"""Receives files of the controller: a tar follows the request, and is unpacked beside its item."""

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

# The directory of files that arrived for an item. It is beside the item, because the node may lack the space.
INBOX = re.compile(r"\.(?P<name>.+)\.upload")


class FilesNeededError(StagingError):
    """Only the content of a file of the controller tells whether it has changed, or it becomes a part of the item."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "has to be sent.", "Send it with the request.")


@dataclass(frozen=True)
class UploadFile:
    """A file on the controller. sha256: empty as long as the file was not read."""

    path: str
    size: int
    mtime_ns: int = 0
    sha256: str = ""

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    @property
    def identity(self) -> list[object]:
        """How the manifest has it: without its path, which differs between controllers."""
        return [self.name, self.size, self.mtime_ns, self.sha256]

    def equals(self, before: Sequence[object]) -> bool:
        """Whether it is a file of the manifest; an error if its content has to decide, and is not known."""
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
    """The tar that follows a request. identity: of the names and hashes of its files. size: of them, in bytes."""

    identity: str
    size: int


def inbox(target: Path) -> Path:
    return target.with_name(f".{target.name}.upload")


def receive(stream: BinaryIO, attachment: Attachment, target: Path) -> Path:
    """Unpack a tar in a new directory, for an item. Raises StagingError for other files than were announced."""
    parent, left = inbox(target), attachment.size
    hashes: dict[str, str] = {}
    remedy = "Stage it again when nothing writes to them."
    problem = StagingError(target, "did not get its files as they were announced.", remedy)
    with as_staging_errors(parent, "uploaded"), contextlib.ExitStack() as undo:
        check_space(parent, left)
        parent.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(dir=parent))
        undo.callback(remove_received, directory)
        try:
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for member in archive:
                    left -= member.size
                    if not member.isreg() or not is_plain_path(member.name) or left < 0:
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
    remove_tree(directory)
    # Another upload for the same item may still use the parent directory.
    with contextlib.suppress(OSError):
        directory.parent.rmdir()
