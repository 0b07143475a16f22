# SPDX-License-Identifier: GPL-3.0-or-later
"""What all sources of rows have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..lock import Progress
from ..manifest import Facts, Manifest


@dataclass(frozen=True)
class Fetched:
    """The files of each split, and facts of the source for the manifest."""

    files: Mapping[str, Sequence[Path]]
    facts: Facts = field(default_factory=dict)


class Source(ABC):
    """Where rows come from."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The source in the manifest."""

    @property
    @abstractmethod
    def identity(self) -> Facts:
        """The options that determine the rows, as JSON; the first key tells the kind of source."""

    def size(self) -> int:
        """How many bytes a dataset will take, as far as that is known in advance; an error if the source is missing."""
        return 0

    def differs(self, manifest: Manifest) -> str:
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
            return f"was staged with {shown(option, before.get(option))}, but the request has {shown(option, value)}."
    return ""


def shown(option: str, value: object) -> str:
    return f"no {option}" if value is None else f"{option} {value if isinstance(value, str) else repr(value)}"
