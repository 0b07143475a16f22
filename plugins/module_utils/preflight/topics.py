# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All topics, and how a machine reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from . import amd, gpu, host, network, software, storage
from .apart import Apart
from .checks import Topic
from .expectation import Expectation
from .reader import Reader
from .tier import Tier

TOPICS: tuple[Topic[Any], ...] = (
    gpu.TOPIC,
    amd.TOPIC,
    host.TOPIC,
    software.TOPIC,
    network.TOPIC,
    storage.TOPIC,
)
# How long reading one topic may take.
FAST_SECONDS, STANDARD_SECONDS = 9.0, 45.0
SECONDS = {Tier.FAST: FAST_SECONDS, Tier.STANDARD: STANDARD_SECONDS, Tier.DEEP: STANDARD_SECONDS}


def reading(tier: Tier, expected: Expectation) -> Apart:
    """Start to read the topics of a tier on this machine."""
    return Apart({topic.name: (_read(topic, tier, expected), SECONDS[tier]) for topic in TOPICS})


def _read(topic: Topic[Any], tier: Tier, expected: Expectation) -> Callable[[], object]:
    return lambda: asdict(topic.read(Reader(expected=expected, seconds=SECONDS[tier])))
