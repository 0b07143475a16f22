"""The kinds of failures, and failures as they are stored."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from argus.archive.failures import Failure, FailureKind
from argus.io.schema import parse
from argus.launcher.diagnosis import classify
from argus.launcher.failure_rules import CAUSES, CONSEQUENCES

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "failures.md"
FROM_NO_LOG = {"stalled", "stopped", "deadline", "no_resources", "dependency"}
RETRIED = {"node_lost", "head_lost", "engine_lost", "killed", "gpu_fault", "service"}
CUDA_OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of\n"


def test_a_stored_failure() -> None:
    found = classify(CUDA_OOM, 1)
    stored = json.loads(json.dumps(asdict(found)))
    assert parse(Failure, stored) == found
    # Another version of this collection may know more kinds.
    assert parse(Failure, {**stored, "kind": "new"}) == replace(found, kind=FailureKind.UNKNOWN)


def test_the_rules_cover_all_kinds_that_a_log_can_show() -> None:
    told = {rule.kind for rule in CAUSES + CONSEQUENCES}
    assert told == set(FailureKind) - FROM_NO_LOG - {"unknown"}


def test_the_documentation_has_all_kinds_in_their_order() -> None:
    rows = [line.split("`")[1] for line in DOCUMENTATION.read_text().splitlines() if line.startswith("| `")]
    assert rows == list(FailureKind)


@pytest.mark.parametrize(
    ("steps", "retried"),
    [(0, RETRIED), (3, RETRIED | {"communication", "storage"})],
)
def test_which_failures_are_retried(steps: int, retried: set[str]) -> None:
    assert {kind for kind in FailureKind if kind.retryable(steps)} == retried
