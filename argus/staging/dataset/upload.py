# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the controller as a source of rows: they arrive in parts, and an interrupted upload continues."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path, PurePosixPath
from typing import Any

from ...common.shared_root import DATASETS
from ..copying import copy_content
from ..errors import StagingError, changed_meanwhile
from ..files import file_sha256, is_plain_path, remove_tree
from ..lock import SAFELY, Progress
from ..manifest import SHA256, Facts, Manifest
from ..options import check_parent
from .schema import SPLITS
from .source import QUICK_BYTES, Fetched

# The directory of what has arrived for a dataset, beside the dataset.
INBOX = re.compile(r"\.(?P<name>.+)\.upload")
OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class UndecidedError(StagingError):
    """Only the content of a file tells whether it has changed."""


@dataclass(frozen=True)
class UploadFile:
    """A file on the controller. sha256: empty as long as the file was not read."""

    path: str
    size: int
    mtime_ns: int
    sha256: str = ""

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name

    def to_json(self) -> dict[str, object]:
        return vars(self)

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
            raise UndecidedError(self.path, "may have changed.", "Read it.")
        return True


class Inbox:
    """What has arrived from the controller for a dataset. Jobs can write beside it: no link is followed."""

    def __init__(self, shared_root: Path, name: str) -> None:
        self.path = check_parent(shared_root, shared_root / DATASETS) / f".{name}.upload"

    def place(self, file: UploadFile) -> Path:
        """In a directory named after the content, because the ending of a name tells the format."""
        return self.path / file.sha256 / file.name

    def received(self, file: UploadFile) -> int:
        """How much of a file has arrived."""
        with contextlib.suppress(OSError):
            found = self.place(file).lstat()
            return found.st_size if stat.S_ISREG(found.st_mode) else 0
        return 0

    def append(self, sha256: str, name: str, offset: int, chunk: FileIO | None) -> int:
        """Append a part that begins at an offset, unless another upload has; return how much has arrived now."""
        if not SHA256.fullmatch(sha256) or not is_plain_path(name) or "/" in name:
            raise StagingError(name, "cannot be uploaded under this name.", "Rename the file.")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._directory(None, str(self.path)) as inbox, self._directory(inbox, sha256) as directory:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | SAFELY
            with FileIO(os.open(name, flags, 0o600, dir_fd=directory), "w") as file:
                found = os.fstat(file.fileno())
                if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or found.st_uid != os.geteuid():
                    what = "is not a file of this upload: something else was put in its place."
                    raise StagingError(self.path / sha256 / name, what, "Remove it, and stage it again.")
                with contextlib.suppress(OSError):
                    # Two controllers may upload the same file.
                    fcntl.flock(file.fileno(), fcntl.LOCK_EX)
                size = os.fstat(file.fileno()).st_size
                if chunk is None or size != offset:
                    return size
                # Not by the kernel, which refuses to copy to the end of a file.
                copy_content(chunk, file, lambda _size: None)
                return os.fstat(file.fileno()).st_size

    @contextlib.contextmanager
    def _directory(self, parent: int | None, name: str) -> Iterator[int]:
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
        descriptor = os.open(name, OPEN_DIRECTORY, dir_fd=parent)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def remove(self) -> None:
        remove_tree(self.path)


@dataclass(frozen=True)
class Upload:
    """Files of the controller. missing: the paths that have no file there, by split."""

    controller: str
    files: Mapping[str, Sequence[UploadFile]]
    missing: Mapping[str, Sequence[str]] = field(default_factory=dict)
    inbox: Inbox | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any], inbox: Inbox | None = None) -> Upload:
        """From the option of the module."""
        files = {
            split: [UploadFile(**{name: each[name] for name in UploadFile.__dataclass_fields__}) for each in several]
            for split, several in (given["files"] or {}).items()
            if several
        }
        missing = {split: several for split, several in (given["missing"] or {}).items() if several}
        return cls(given["controller"], files, missing, inbox)

    def to_json(self) -> dict[str, object]:
        files = {split: [file.to_json() for file in several] for split, several in self.files.items()}
        return {"controller": self.controller, "files": files, "missing": dict(self.missing)}

    @property
    def all(self) -> list[UploadFile]:
        return [file for split in SPLITS for file in self.files.get(split, ())]

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.all)

    @property
    def label(self) -> str:
        names = [file.name for file in self.all]
        more = f" and {len(names) - 2} more" if len(names) > 2 else ""
        return f"{', '.join(names[:2])}{more} of {self.controller}"

    @property
    def identity(self) -> Facts:
        return {"uploaded_files": {split: [file.identity for file in files] for split, files in self.files.items()}}

    @property
    def quick(self) -> bool:
        return self.has_arrived and self.bytes <= QUICK_BYTES

    @property
    def has_arrived(self) -> bool:
        return all(file.sha256 and self._received(file) == file.size for file in self.all)

    def check_missing(self) -> None:
        """Raises StagingError if a pattern has no file on the controller."""
        for split, paths in self.missing.items():
            what = f"the controller {self.controller} has no file {paths[0]}."
            todo = (
                "Correct it: relative paths begin at the inventory. With from: node, files are those that nodes have."
            )
            raise StagingError(f"files.{split}", what, todo)

    def size(self) -> int:
        self.check_missing()
        return self.bytes + sum(file.size - min(file.size, self._received(file)) for file in self.all)

    def differs(self, manifest: Manifest) -> str:
        """Files that this controller does not have are no difference: the dataset may be all that is left of them."""
        uploaded = manifest.mapping("identity").get("uploaded_files")
        for split in SPLITS:
            listed = uploaded.get(split, []) if isinstance(uploaded, dict) else []
            before = [each for each in listed if isinstance(each, list) and len(each) == 4]
            files = self.files.get(split, ())
            for file in files:
                if not any(file.equals(each) for each in before):
                    return f"was staged without {file.path} of {self.controller} as it is now."
            if not self.missing.get(split) and [file.name for file in files] != [each[0] for each in before]:
                names = ", ".join(str(each[0]) for each in before) or "no file"
                return f"was staged from {names} as files.{split}, which is not what the request has."
        return ""

    def fetch(self, scratch: Path, progress: Progress, manifest: Manifest | None) -> Fetched:
        self.size()
        progress.begin("verifying the upload", self.bytes)
        found: dict[str, list[Path]] = {}
        for split, files in self.files.items():
            for file in files:
                found.setdefault(split, []).append(self._verified(file))
                progress.add(file.size)
        return Fetched(found)

    def _verified(self, file: UploadFile) -> Path:
        if self.inbox is None or not file.sha256 or self._received(file) < file.size:
            raise StagingError(file.path, "was not uploaded completely.", "Stage it again.")
        place = self.inbox.place(file)
        if file_sha256(str(place), links=False) != file.sha256:
            place.unlink()
            raise changed_meanwhile(file.path)
        return place

    def _received(self, file: UploadFile) -> int:
        return self.inbox.received(file) if self.inbox and file.sha256 else 0
