"""Values that travel between functions and rooms are immutable."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import pkgutil
from collections.abc import Iterator

from ansible_collections.argus.verl.plugins import module_utils

import argus

# They collect something while they are filled, and stay in the function or object that does it.
MUTABLE = {
    "checks.request.Facts",
    "report.job_curves.JobCurves",
    "report.curves.Curve",
    "steward.attempt_checks.AttemptChecks",
    "steward.observer.AttemptMemory",
    "staging.dataset.stage.DatasetBuilder",
    "staging.dataset.checks.RowProblem",
}


def all_dataclasses() -> Iterator[tuple[str, type]]:
    """The names, relative to the program or to module_utils, and the classes."""
    prefix = f"{module_utils.__name__}."
    program = pkgutil.walk_packages(argus.__path__, "argus.")
    machines = pkgutil.walk_packages(module_utils.__path__, prefix)
    for module in itertools.chain(program, (info for info in machines if not info.name.startswith(f"{prefix}argus"))):
        loaded = importlib.import_module(module.name)
        for name, kind in vars(loaded).items():
            if isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind.__module__ == module.name:
                yield f"{module.name.removeprefix(prefix).removeprefix('argus.')}.{name}", kind


def test_dataclasses_are_frozen() -> None:
    classes = dict(all_dataclasses())
    assert len(classes) > 80
    mutable = {name for name, kind in classes.items() if not kind.__dataclass_params__.frozen}  # type: ignore[attr-defined]
    assert mutable == MUTABLE
