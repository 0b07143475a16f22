# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Readiness: wait until every expected node is alive, except those that are known not to come."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..argus.launcher.ray_api import PATIENCE_SECONDS, RayApiError, RayHead
from .membership import ExpectedNode, Membership, membership

POLL_SECONDS = 0.2
# HTTP without a token, and with a wrong one.
REFUSALS = (401, 403)


class Head(Protocol):
    """What is asked of a Ray head."""

    def nodes(self) -> Sequence[Mapping[str, Any]]: ...


@dataclass(frozen=True)
class Readiness:
    """The last membership, the seconds that it took, and the head's error if it did not answer the last time."""

    membership: Membership
    waited: float
    problem: str


def wait_until_ready(
    head: Head,
    expected: Sequence[ExpectedNode],
    timeout: float,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Readiness:
    """Ask the head until no node is awaited any more, or for `timeout` seconds; at least once."""
    start = clock()
    while True:
        problem = ""
        try:
            seen = membership(expected, head.nodes())
        except RayApiError as error:
            seen, problem = membership(expected, None), str(error)
        waited = clock() - start
        if not seen.awaited or waited >= timeout:
            return Readiness(seen, waited, problem)
        sleep(POLL_SECONDS)


def exposure(address: str) -> str:
    """How a head answers who has no token; "" if it refuses, or if it does not answer at all."""
    try:
        RayHead(address, patience=PATIENCE_SECONDS).get("/api/jobs/")
    except RayApiError as error:
        if error.status in REFUSALS or error.status is None:
            return ""
    return (
        f"{address} does not refuse requests without the cluster's token: everyone who reaches it runs code there. "
        "Remove the cluster (cluster_down.yml), and check that Ray in its image is 2.52 or later"
    )
