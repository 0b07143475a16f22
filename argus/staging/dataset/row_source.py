# SPDX-License-Identifier: Apache-2.0
"""What all sources of a dataset's rows have in common, and the source of files that the controller sends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...checks.dataset import SPLITS
from ..lock import Progress
from ..manifest import Facts, Manifest
from ..options import StagingError
from ..upload import FilesNeededError, UploadFile

# Where the files of a dataset are: the values of its option `from`.
FROM_CONTROLLER, FROM_SHARED_ROOT, FROM_NODE = "controller", "shared_root", "node"


@dataclass(frozen=True)
class Fetched:
    """Files with the rows, as a source provides them in this node."""

    files: Mapping[str, Sequence[Path]]  # by split, in the order of their rows
    facts: Facts = field(default_factory=dict)  # what the manifest tells of the source besides its label


class RowSource(ABC):
    """Where the rows of a dataset come from. All methods raise StagingError for a source that cannot be used."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The name of the source in the manifest, for people."""

    @property
    @abstractmethod
    def identity(self) -> Facts:
        """The options that determine the rows, as JSON; the first key tells the kind of source."""

    def size(self) -> int:
        """The bytes that a dataset will take, as far as they are known in advance."""
        return 0

    def mismatch(self, manifest: Manifest) -> str:
        """How a dataset with this manifest was staged from another source; empty if it was not."""
        return option_mismatch(manifest, self.identity)

    @abstractmethod
    def fetch(self, scratch: Path, progress: Progress, manifest: Manifest | None) -> Fetched:
        """Provides the files of each split.

        scratch: an empty directory, which the caller removes. manifest: of a dataset that is being repaired, or None.
        """


def option_mismatch(manifest: Manifest, expected: Facts) -> str:
    """The first of these options that had another value when the dataset was staged; empty if there is none."""
    before = manifest.mapping("identity")
    for option, value in expected.items():
        if before.get(option) != value:
            was = option_text(option, before.get(option))
            return f"was staged with {was}, but the request has {option_text(option, value)}."
    return ""


def option_text(option: str, value: object) -> str:
    return f"no {option}" if value is None else f"{option} {value if isinstance(value, str) else repr(value)}"


def default_origin(patterns: Mapping[str, Sequence[str]]) -> str:
    """The value of `from` for a dataset without it. Raises StagingError for relative paths beside absolute ones."""
    is_absolute = {pattern.startswith("/") for split_patterns in patterns.values() for pattern in split_patterns}
    if len(is_absolute) > 1:
        remedy = "Set from: controller, shared_root or node."
        raise StagingError("files", "has relative paths, of the controller, and absolute ones, of nodes.", remedy)
    return FROM_CONTROLLER if is_absolute == {False} else FROM_NODE


@dataclass(frozen=True)
class UploadedRows(RowSource):
    """Rows from files that the controller sends if they are needed."""

    controller: str  # the controller's name, for messages
    files: Mapping[str, Sequence[UploadFile]]  # by split
    # By split, the paths and patterns that match no file on the controller.
    missing: Mapping[str, Sequence[str]] = field(default_factory=dict)
    received: Path | None = None  # the directory of this node in which the files arrived; None if they were not sent

    @property
    def members(self) -> dict[str, UploadFile]:
        """Each file once, by its path in the tar, which ends with the file's name: the name tells the format."""
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
            problem = f"the controller {self.controller} has no file {paths[0]}."
            remedy = (
                "Correct it: relative paths begin at the inventory. With from: node, files are those that nodes have."
            )
            raise StagingError(f"files.{split}", problem, remedy)

    def size(self) -> int:
        self.check_missing()
        # The files and the dataset; files that have arrived take no further space.
        return self.bytes if self.received else 2 * self.bytes

    def mismatch(self, manifest: Manifest) -> str:
        """See RowSource. Files that the controller no longer has are no mismatch: only the dataset may be left."""
        uploaded = manifest.mapping("identity").get("uploaded_files")
        for split in SPLITS:
            listed = uploaded.get(split, []) if isinstance(uploaded, dict) else []
            before = [entry for entry in listed if isinstance(entry, list) and len(entry) == 4]
            files = self.files.get(split, ())
            for file in files:
                if not any(file.equals(entry) for entry in before):
                    return f"was staged without {file.path} of {self.controller} as it is now."
            if not self.missing.get(split) and [file.name for file in files] != [entry[0] for entry in before]:
                names = ", ".join(str(entry[0]) for entry in before) or "no file"
                return f"was staged from {names} as files.{split}, which is not what the request has."
        return ""

    def fetch(self, scratch: Path, progress: Progress, manifest: Manifest | None) -> Fetched:
        self.size()
        members = self.members
        if self.received is None:
            raise FilesNeededError(next(iter(members.values())).path)
        paths = {file: self.received / name for name, file in members.items()}
        return Fetched({split: [paths[file] for file in files] for split, files in self.files.items()})

    def with_controller_paths(self, error: StagingError) -> StagingError:
        """The error with the controller's paths of the files instead of those of this node."""
        texts = [error.finding.where, error.finding.problem, error.finding.remedy]
        if self.received:
            for name, file in self.members.items():
                texts = [text.replace(str(self.received / name), file.path) for text in texts]
        return StagingError(*texts)
