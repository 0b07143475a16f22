# SPDX-License-Identifier: GPL-3.0-or-later
"""The checks software.*: the Python of a node without a container, and its packages."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..cluster.machine import Machine
from ..cluster.software import PACKAGES, RAY
from ..cluster.state import ROCKSDB
from .checks import Invariant, Problem
from .expectation import Expectation

# Earlier releases of Ray ignore the token: everyone who reaches the head runs code on it.
RAY_WITH_TOKENS = (2, 52)
# In earlier releases, Ray's head cannot keep its tables on a disk.
RAY_WITH_TABLES = (2, 57)


def is_at_least(ray_version: str, release: tuple[int, int]) -> bool:
    """Whether a version of Ray is a release or a later one. True for another form, as of a Ray built by hand."""
    match = re.match(r"(\d+)\.(\d+)", ray_version)
    return not match or (int(match[1]), int(match[2])) >= release


def software_problems(machine: Machine, expected: Expectation) -> Iterator[Problem]:
    software = machine.software
    if software is None:
        return
    if software.problem:
        yield Problem("software.python", f"{software.path} does not run: {software.problem}")
        return
    ray_version = software.packages.get(RAY, "")
    if not ray_version:
        yield Problem("software.python", f"Ray is not installed for {software.path}")
    elif not is_at_least(ray_version, RAY_WITH_TOKENS):
        problem = f"{software.path} has Ray {ray_version}, which has no tokens"
        yield Problem("software.python", problem, "install Ray 2.57 or later")
    elif expected.head_storage == ROCKSDB and not is_at_least(ray_version, RAY_WITH_TABLES):
        yield Problem(
            "software.python",
            f"{software.path} has Ray {ray_version}, whose head keeps no tables",
            "install Ray 2.57 or later, or set cluster_head_storage: memory, with which jobs end with their head",
        )


def software_invariants(machine: Machine) -> Iterator[Invariant]:
    software = machine.software
    if software is None:
        return
    yield Invariant("software.ray", "Python", software.python)
    yield Invariant("software.ray", "Ray", software.packages.get(RAY, ""))
    for name, title in PACKAGES.items():
        # A head without these packages has empty values, which are left out.
        yield Invariant("software.packages", title, software.packages.get(name, ""))
