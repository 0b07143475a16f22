# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare model and memory of GPUs with what the inventory expects."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from ..argus.common.findings import ERROR
from .checks import Check, Problem
from .expectation import Expectation

GPU_REMEDY = (
    "use machines with these GPUs, or correct preflight_gpu_model and preflight_gpu_memory_gib in the inventory"
)
# Drivers report less than the name of a product: 79.6 GiB of an H100 80GB, 45.0 GiB of an L40S 48GB.
TOLERANCE = 0.1


def kind_problems(
    gpus: Iterable[tuple[str, int]], expected: Expectation, model: Check, size: Check
) -> Iterator[Problem]:
    """gpus: the model and MiB of each GPU; 0 where the driver does not report its memory."""
    # A whole word: "A10" is not an A100.
    words = re.compile(rf"(?<![^\W_]){re.escape(expected.gpu_model)}(?![^\W_])", re.I)
    for (name, mib), count in sorted(Counter(gpus).items()):
        if expected.gpu_model and not words.search(name):
            yield Problem(model, f"{count} x {name}, expected {expected.gpu_model}", GPU_REMEDY, ERROR)
        if mib < expected.gpu_memory_gib * 1024 * (1 - TOLERANCE):
            memory = f"{mib / 1024:.1f} GiB" if mib else "an unknown amount"
            what = f"{count} x {name} with {memory} of memory, expected {expected.gpu_memory_gib:g} GiB"
            yield Problem(size, what)
