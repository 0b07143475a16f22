# SPDX-License-Identifier: GPL-3.0-or-later
"""All checks that run on one worker, with the packages and devices that the job will have."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from ..common.findings import WARNING, Finding, about
from .common import CheckRequest, Facts, error_text
from .dataset import dataset_findings
from .model import model_findings
from .packages import debugger_findings, requirement_findings
from .paths import path_findings
from .prompts import prompt_findings
from .reward import reward_findings
from .space import space_findings

Check = Callable[[CheckRequest, Facts], Iterable[Finding]]
# By the key or the subject that a check is about. The order matters: later checks read facts of earlier ones.
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
    """All problems with dataset, model, reward function, packages and space, and the facts about them."""
    found: list[Finding] = []
    facts = Facts()
    for key, check in CHECKS:
        started = time.monotonic()
        try:
            found += check(request, facts)
        except Exception as error:
            # An unexpected file format must not stop a good job.
            what = f"could not be checked: {type(error).__name__}: {error_text(error)}"
            found.append(about(key, what, "report this error; the job itself may be fine", WARNING))
        facts.seconds[key] = round(time.monotonic() - started, 3)
    return found, facts
