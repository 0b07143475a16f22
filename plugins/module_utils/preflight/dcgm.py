# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The diagnostics of NVIDIA's DCGM, where it is installed. They use the GPUs fully, for minutes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..findings import ERROR, NOTE, WARNING
from .checks import Check, Context, Problem, Topic
from .reader import Reader
from .tier import Tier

LEVEL = "2"
DIAG = Check(
    "dcgm.diag",
    ERROR,
    "dcgmi diag passes, where DCGM is installed",
    "run it again on the machine (dcgmi diag -r 3); if it fails again, ask the vendor for another GPU",
    Tier.DEEP,
)
BAD = {"fail": ERROR, "warn": WARNING}


@dataclass(frozen=True)
class Failed:
    """A test that did not pass."""

    test: str
    gpu: str
    status: str
    reason: str


@dataclass(frozen=True)
class Diagnostics:
    """error: why there is no result. tests: how many tests ran."""

    installed: bool = False
    error: str = ""
    tests: int = 0
    failed: tuple[Failed, ...] = ()


def read(reader: Reader) -> Diagnostics:
    output = reader.run("dcgmi", "diag", "-r", LEVEL, "-j")
    if output.code == 127:
        return Diagnostics()
    # The exit code is not 0 if a test fails.
    return parse_diagnostics(output.out) or Diagnostics(
        True, " ".join((output.err or output.out).split())[:300] or f"exit code {output.code} without a message"
    )


def parse_diagnostics(text: str) -> Diagnostics | None:
    """The JSON of "dcgmi diag -j": the name of its outermost key differs between versions."""
    try:
        loaded: Any = json.loads(text[text.index("{") :])
    except ValueError:
        return None
    inner = [each for each in loaded.values() if isinstance(each, dict) and "test_categories" in each]
    if not inner:
        return None
    tests = 0
    failed = []
    for test in _tests(inner[0]["test_categories"]):
        tests += 1
        failed += list(_failures(test))
    return Diagnostics(True, "", tests, tuple(failed))


def _tests(categories: object) -> Iterator[dict[str, Any]]:
    for category in categories if isinstance(categories, list) else []:
        # DCGM 3 puts a null between the tests.
        yield from (test for test in (category or {}).get("tests", []) if isinstance(test, dict))


def _failures(test: dict[str, Any]) -> Iterator[Failed]:
    for result in test.get("results", []):
        status = str(result.get("status", "")).lower()
        if status in BAD:
            gpu = result.get("gpu_id", result.get("gpu_ids", result.get("entity_id", "")))
            reasons = result.get("warnings") or []
            texts = [each.get("warning", "") if isinstance(each, dict) else str(each) for each in reasons]
            yield Failed(str(test.get("name", "")), str(gpu), status, "; ".join(filter(None, texts))[:300])


def judge(answer: Diagnostics, context: Context) -> Iterator[Problem]:
    if not context.machine.gpus or context.expected.gpus == 0:
        return
    if not answer.installed:
        yield Problem(DIAG, "DCGM is not installed, the GPUs were not tested", "install datacenter-gpu-manager", NOTE)
    elif answer.error:
        yield Problem(DIAG, f"dcgmi diag gives no result: {answer.error}", "start its service (nvidia-dcgm), try again")
    for failed in answer.failed:
        gpu = f" of GPU {failed.gpu}" if failed.gpu else ""
        reason = f": {failed.reason}" if failed.reason else ""
        yield Problem(DIAG, f'test "{failed.test}"{gpu}: {failed.status}{reason}', severity=BAD[failed.status])


TOPIC: Topic[Diagnostics] = Topic("dcgm", Diagnostics, (DIAG,), read, judge, tier=Tier.DEEP)
