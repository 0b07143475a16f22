# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the controller as a source of rows. Their content follows a request, one after the other."""

from __future__ import annotations

import contextlib
import hashlib
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from ...checks.rows import SPLITS
from ...common.shared_root import DATASETS
from ..errors import StagingError, changed_meanwhile, reported
from ..files import CHUNK, remove_tree
from ..lock import Progress
from ..manifest import Facts, Manifest
from .source import Fetched, Source

# Where the files of a dataset are, as its option `from` has it.
CONTROLLER, SHARED_ROOT, NODE = "controller", "shared_root", "node"
# The directory of what has arrived for a dataset, beside the dataset.
INBOX = re.compile(r"\.(?P<name>.+)\.upload")


class FilesNeededError(StagingError):
    """Only the content of a file of the controller tells whether it has changed, or it becomes a part of the item."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "has to be sent.", "Send it with the request.")


def place_of(patterns: Mapping[str, Sequence[str]]) -> str:
    """Where files are without `from`: relative paths are on the controller, absolute ones on the nodes."""
    absolute = {pattern.startswith("/") for several in patterns.values() for pattern in several}
    if len(absolute) > 1:
        todo = "Set from: controller, shared_root or node."
        raise StagingError("files", "has relative paths, of the controller, and absolute ones, of nodes.", todo)
    return CONTROLLER if absolute == {False} else NODE


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


def inbox(shared_root: Path, name: str) -> Path:
    """What has arrived for a dataset; beside it, because the node itself may not have the space."""
    return shared_root / DATASETS / f".{name}.upload"


def receive(files: Sequence[UploadFile], stream: BinaryIO, parent: Path) -> Path:
    """Read the files from a stream, into a new directory. Raises StagingError for other content than was announced."""
    with reported(parent, "uploaded"), contextlib.ExitStack() as undo:
        parent.mkdir(parents=True, exist_ok=True)
        directory = Path(tempfile.mkdtemp(dir=parent))
        undo.callback(remove_tree, directory)
        for number, file in enumerate(files):
            place(directory, number, file).parent.mkdir()
            receive_file(file, stream, place(directory, number, file))
        if stream.read(1):
            raise changed_meanwhile(files[-1].path)
        undo.pop_all()
        return directory


def place(directory: Path, number: int, file: UploadFile) -> Path:
    """Its name stays, whose ending tells the format."""
    return directory / str(number) / file.name


def receive_file(file: UploadFile, stream: BinaryIO, target: Path) -> None:
    digest, left = hashlib.sha256(), file.size
    with target.open("xb") as writing:
        while left and (part := stream.read(min(left, CHUNK))):
            writing.write(part)
            digest.update(part)
            left -= len(part)
    if left:
        raise StagingError(file.path, "has not arrived completely.", "Stage it again when nothing writes to it.")
    if digest.hexdigest() != file.sha256:
        raise changed_meanwhile(file.path)


@dataclass(frozen=True)
class Upload(Source):
    """Files of the controller. missing: the paths that have no file there, by split. received: where they are now."""

    controller: str
    files: Mapping[str, Sequence[UploadFile]]
    missing: Mapping[str, Sequence[str]] = field(default_factory=dict)
    received: Path | None = None

    @property
    def all(self) -> list[UploadFile]:
        """Each file once."""
        return list(dict.fromkeys(file for split in SPLITS for file in self.files.get(split, ())))

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
        return self.bytes if self.received else 2 * self.bytes

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
        if self.received is None:
            raise FilesNeededError(self.all[0].path)
        places = {file: place(self.received, number, file) for number, file in enumerate(self.all)}
        return Fetched({split: [places[file] for file in files] for split, files in self.files.items()})

    def with_own_paths(self, error: StagingError) -> StagingError:
        """An error that names the files as they are called on the controller."""
        texts = [error.finding.where, error.finding.what, error.finding.todo]
        if self.received:
            for number, file in enumerate(self.all):
                arrived = str(place(self.received, number, file))
                texts = [text.replace(arrived, file.path) for text in texts]
        return StagingError(*texts)
