"""Files of an archive as tests read them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from argus.archive import metrics
from argus.archive.archive import Archive


def metrics_of(archive: Archive) -> Iterator[dict[str, Any]]:
    """The metrics of each step, in the order of steps. If several attempts did a step, those of the last one count."""
    entries: dict[int, dict[str, Any]] = {}
    for path in metrics.files(archive.path):
        attempt: dict[int, dict[str, Any]] = {}
        with path.open("rb") as file:
            for step in metrics.read_steps(file, metrics.MAX_FILE_BYTES):
                attempt.setdefault(step.number, {"step": step.number, "data": {}})["data"].update(step.metrics)
        if attempt:
            # Steps of an earlier attempt beyond its last checkpoint are repeated. The step that this attempt resumed
            # from may be among them as well, with a validation.
            first = min(attempt)
            attempt[first]["data"] = {**entries.get(first, attempt[first])["data"], **attempt[first]["data"]}
            entries = {step: entry for step, entry in entries.items() if step < first} | attempt
    for step in sorted(entries):
        yield entries[step]


def lines_of(archive: Archive, name: str) -> list[dict[str, Any]]:
    """The mappings of a file with one for each line; none without it. The last line may be incomplete."""
    mappings = []
    with contextlib.suppress(FileNotFoundError):
        for line in (archive.path / name).read_text(errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                mappings.append(json.loads(line))
    return mappings
