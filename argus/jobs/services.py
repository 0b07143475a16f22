# SPDX-License-Identifier: Apache-2.0
"""The services and results of operations on jobs: the head, its Jobs API, its registry, and errors."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from ..common.findings import Finding
from ..common.identity import JOBS_API, NODE, SHARED_ROOT, SHARED_ROOT_MOUNT
from ..common.shared_root import DEFAULT_SHARED_ROOT
from ..queue import attempts
from ..ray.api import RayHead
from .registry import Registry

# The directory of a node without a container, whose environment this process takes over. It may begin with "~".
ENTER_VARIABLE = "ARGUS_VERL_ENTER"
DEFAULT_JOBS_API = "http://127.0.0.1:8265"


def jobs_api() -> str:
    """The address of the Jobs API as this process reaches it; "" on a node that is not the head."""
    return os.environ.get(JOBS_API, "" if NODE in os.environ else DEFAULT_JOBS_API)


def shared_root() -> str:
    return os.environ.get(SHARED_ROOT_MOUNT) or DEFAULT_SHARED_ROOT


def on_machines(root: str) -> str:
    """The path of a shared root for people on the machines; the given one if it is not that of this node."""
    return os.environ.get(SHARED_ROOT) or root if root == shared_root() else root


def enter_node() -> None:
    """Take over the environment of the node that the caller names, unless the node is down."""
    directory = os.environ.pop(ENTER_VARIABLE, "")
    if directory:
        with contextlib.suppress(FileNotFoundError):
            os.environ.update(json.loads((Path(directory).expanduser() / "node.json").read_bytes())["environment"])
            # Python has read it before.
            sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))


class RefusedError(Exception):
    """The JobSpec has errors. Nothing was changed."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__("the JobSpec was refused")
        self.findings = tuple(findings)


class OperationError(Exception):
    """An operation failed. The message is for people."""


@dataclass(frozen=True)
class Effect:
    """The effect of an operation, or of its check mode: the return values of its module, and findings."""

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
