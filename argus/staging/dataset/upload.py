# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of the controller as a source of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...checks.rows import SPLITS
from ..errors import StagingError
from ..lock import Progress
from ..manifest import Facts, Manifest
from ..upload import FilesNeededError, UploadFile
from .source import Fetched, Source

# Where the files of a dataset are, as its option `from` has it.
CONTROLLER, SHARED_ROOT, NODE = "controller", "shared_root", "node"


def place_of(patterns: Mapping[str, Sequence[str]]) -> str:
    """Where files are without `from`: relative paths are on the controller, absolute ones on the nodes."""
    absolute = {pattern.startswith("/") for several in patterns.values() for pattern in several}
    if len(absolute) > 1:
        todo = "Set from: controller, shared_root or node."
        raise StagingError("files", "has relative paths, of the controller, and absolute ones, of nodes.", todo)
    return CONTROLLER if absolute == {False} else NODE


@dataclass(frozen=True)
class Upload(Source):
    """Files of the controller. missing: the paths that have no file there, by split. received: where they are now."""

    controller: str
    files: Mapping[str, Sequence[UploadFile]]
    missing: Mapping[str, Sequence[str]] = field(default_factory=dict)
    received: Path | None = None

    @property
    def members(self) -> dict[str, UploadFile]:
        """Each file once, by its path in the tar. The ending of its name tells the format."""
        files = dict.fromkeys(file for split in SPLITS for file in self.files.get(split, ()))
        return {f"{number}/{file.name}": file for number, file in enumerate(files)}

    @property
    def bytes(self) -> int:
        return sum(file.size for file in self.members.values())

    @property
    def label(self) -> str:
        names = [file.name for file in self.members.values()]
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
        members = self.members
        if self.received is None:
            raise FilesNeededError(next(iter(members.values())).path)
        places = {file: self.received / name for name, file in members.items()}
        return Fetched({split: [places[file] for file in files] for split, files in self.files.items()})

    def with_own_paths(self, error: StagingError) -> StagingError:
        """An error that names the files as they are called on the controller."""
        texts = [error.finding.where, error.finding.what, error.finding.todo]
        if self.received:
            for name, file in self.members.items():
                texts = [text.replace(str(self.received / name), file.path) for text in texts]
        return StagingError(*texts)
