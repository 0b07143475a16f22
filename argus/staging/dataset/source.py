# SPDX-License-Identifier: Apache-2.0
"""The base class of row sources, and the source whose files come from the controller."""

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


@dataclass(frozen=True)
class Fetched:
    """The files of each split, and facts of the source for the manifest."""

    files: Mapping[str, Sequence[Path]]
    facts: Facts = field(default_factory=dict)


class RowSource(ABC):
    """A source of rows."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The source in the manifest."""

    @property
    @abstractmethod
    def identity(self) -> Facts:
        """The options that determine the rows, as JSON; the first key tells the kind of source."""

    def size(self) -> int:
        """The bytes that a dataset will take, as far as known in advance; an error if the source is missing."""
        return 0

    def difference(self, manifest: Manifest) -> str:
        """How the source in a manifest differs from this one; empty if it does not."""
        return difference_of(manifest, self.identity)

    @abstractmethod
    def fetch(self, scratch: Path, progress: Progress, manifest: Manifest | None) -> Fetched:
        """Provides the files of each split.

        scratch: an empty directory, which is removed afterwards. manifest: of the dataset that is being repaired.
        """


def difference_of(manifest: Manifest, expected: Facts) -> str:
    """The first of these options that had another value when the dataset was staged; empty if there is none."""
    before = manifest.mapping("identity")
    for option, value in expected.items():
        if before.get(option) != value:
            was = option_text(option, before.get(option))
            return f"was staged with {was}, but the request has {option_text(option, value)}."
    return ""


def option_text(option: str, value: object) -> str:
    return f"no {option}" if value is None else f"{option} {value if isinstance(value, str) else repr(value)}"


# Files of the controller as a source of rows.

# The values of a dataset's option `from`, the place of its files.
CONTROLLER, SHARED_ROOT, NODE = "controller", "shared_root", "node"


def place_of(patterns: Mapping[str, Sequence[str]]) -> str:
    """The place of files without `from`: relative paths are on the controller, absolute ones on the nodes."""
    absolute = {pattern.startswith("/") for several in patterns.values() for pattern in several}
    if len(absolute) > 1:
        remedy = "Set from: controller, shared_root or node."
        raise StagingError("files", "has relative paths, of the controller, and absolute ones, of nodes.", remedy)
    return CONTROLLER if absolute == {False} else NODE


@dataclass(frozen=True)
class Upload(RowSource):
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
            problem = f"the controller {self.controller} has no file {paths[0]}."
            remedy = (
                "Correct it: relative paths begin at the inventory. With from: node, files are those that nodes have."
            )
            raise StagingError(f"files.{split}", problem, remedy)

    def size(self) -> int:
        self.check_missing()
        return self.bytes if self.received else 2 * self.bytes

    def difference(self, manifest: Manifest) -> str:
        """Files that this controller does not have are no difference: the dataset may be all that is left of them."""
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
        places = {file: self.received / name for name, file in members.items()}
        return Fetched({split: [places[file] for file in files] for split, files in self.files.items()})

    def with_controller_paths(self, error: StagingError) -> StagingError:
        """An error that names the files as they are called on the controller."""
        texts = [error.finding.where, error.finding.problem, error.finding.remedy]
        if self.received:
            for name, file in self.members.items():
                texts = [text.replace(str(self.received / name), file.path) for text in texts]
        return StagingError(*texts)
