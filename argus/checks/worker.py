# SPDX-License-Identifier: Apache-2.0
"""Runs all checks of a job on one worker, with the packages and devices that the job will have."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from ..common.findings import WARNING, Finding, about
from .files import error_text
from .job_dataset import dataset_findings
from .model import model_findings
from .packages import debugger_findings, requirement_findings
from .paths import path_findings
from .prompts import prompt_findings
from .request import CheckRequest, Facts
from .reward import reward_findings
from .space import space_findings

Check = Callable[[CheckRequest, Facts], Iterable[Finding]]
# Each check with the name that its findings and durations have. Later checks read facts of earlier ones.
CHECKS: tuple[tuple[str, Check], ...] = (
    ("paths", path_findings),
    ("dataset", dataset_findings),
    ("model", model_findings),
    ("prompts", prompt_findings),
    ("reward_fn_path", reward_findings),
    ("code_path", requirement_findings),
    ("debugger", debugger_findings),
    ("shared_root", space_findings),
)


def check_worker(request: CheckRequest) -> tuple[list[Finding], Facts]:
    """Run all checks in their order. Returns the findings, and the facts that the checks have filled in."""
    findings: list[Finding] = []
    facts = Facts()
    for key, check in CHECKS:
        started = time.monotonic()
        try:
            findings += check(request, facts)
        except Exception as error:
            # An unexpected file format must not stop a good job.
            problem = f"could not be checked: {type(error).__name__}: {error_text(error)}"
            findings.append(about(key, problem, "report this error; the job itself may be fine", WARNING))
        facts.seconds[key] = round(time.monotonic() - started, 3)
    return findings, facts
