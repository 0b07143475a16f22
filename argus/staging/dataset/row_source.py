# SPDX-License-Identifier: Apache-2.0
"""What all sources of a dataset's rows have in common: the class RowSource, and the values of the option `from`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..manifest import Facts, Manifest
from ..options import StagingError
from ..progress import Progress

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

        scratch: an empty directory for files, which the caller removes afterwards.
        manifest: of the dataset that is being repaired; None for a new one.
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
