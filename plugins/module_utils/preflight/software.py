# SPDX-License-Identifier: GPL-3.0-or-later
"""The Python of a node without a container, and its packages. A container has those of its image."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..cluster.machine import Machine
from ..cluster.state import ROCKSDB
from ..cluster.system import PACKAGES, RAY
from .checks import Compared, Expectation, Problem

# Earlier releases of Ray ignore the token: everyone who reaches the head runs code on it.
RAY_WITH_TOKENS = (2, 52)
# Earlier ones have no tables that outlive their head.
RAY_WITH_TABLES = (2, 57)


def is_since(ray: str, release: tuple[int, int]) -> bool:
    """Whether a Ray is of a release or a later one. One that was built by hand may have another form, and passes."""
    found = re.match(r"(\d+)\.(\d+)", ray)
    return not found or (int(found[1]), int(found[2])) >= release


def software_problems(machine: Machine, expected: Expectation) -> Iterator[Problem]:
    software = machine.software
    if software is None:
        return
    if software.problem:
        yield Problem("software.python", f"{software.path} does not run: {software.problem}")
        return
    ray = software.packages.get(RAY, "")
    if not ray:
        yield Problem("software.python", f"Ray is not installed for {software.path}")
    elif not is_since(ray, RAY_WITH_TOKENS):
        what = f"{software.path} has Ray {ray}, which has no tokens"
        yield Problem("software.python", what, "install Ray 2.57 or later")
    elif expected.head_storage == ROCKSDB and not is_since(ray, RAY_WITH_TABLES):
        yield Problem(
            "software.python",
            f"{software.path} has Ray {ray}, whose head keeps no tables",
            "install Ray 2.57 or later, or set cluster_head_storage: memory, with which jobs end with their head",
        )


def compared(machine: Machine) -> Iterator[Compared]:
    software = machine.software
    if software is None:
        return
    yield Compared("software.ray", "Python", software.python)
    yield Compared("software.ray", "Ray", software.packages.get(RAY, ""))
    for name, title in PACKAGES.items():
        # The head has no need of them.
        yield Compared("software.packages", title, software.packages.get(name, ""))
