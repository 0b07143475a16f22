# SPDX-License-Identifier: GPL-3.0-or-later
"""What operations use outside of the shared root, and how they fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from ..common.findings import Finding
from ..queue import attempts
from ..ray.api import RayHead
from .defaults import DEFAULT_JOBS_API
from .registry import Registry


class RefusedError(Exception):
    """The JobSpec has errors. Nothing was changed."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__("the JobSpec was refused")
        self.findings = tuple(findings)


class OperationError(Exception):
    """An operation failed. The message is for people."""


@dataclass(frozen=True)
class Answer:
    """What an operation has done, or would do in check mode: the return values of its module, and findings."""

    changed: bool
    result: Mapping[str, Any]
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class Services:
    """The head, its Jobs API, its registry and its processes. `head` and `client` take an address of the Jobs API.

    address: that of this head.
    """

    head: Callable[[str], RayHead]
    client: Callable[[str], Any]
    cancel_pending: Callable[[str], None] = attempts.cancel_pending
    address: str = DEFAULT_JOBS_API
    registry: Registry = field(default_factory=Registry)
    clock: ModuleType = time
