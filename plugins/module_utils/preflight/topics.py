# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All topics, and how a machine reads and judges them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ..argus.common.findings import Finding
from . import amd, gpu, host, network, software
from .checks import Context, Expectation, Problem, Topic
from .reading import Reader, Reading
from .table import FAST

TOPICS: tuple[Topic[Any], ...] = (gpu.TOPIC, amd.TOPIC, host.TOPIC, software.TOPIC, network.TOPIC)
# How long reading one topic may take.
FAST_SECONDS, STANDARD_SECONDS = 9.0, 45.0


def reading(tier: str, expected: Expectation) -> Reading:
    seconds = FAST_SECONDS if tier == FAST else STANDARD_SECONDS
    return Reading({topic.name: partial(topic.read, Reader(seconds=seconds), expected) for topic in TOPICS}, seconds)


def judged(answers: Mapping[str, Mapping[str, Any]], context: Context) -> tuple[list[Finding], dict[str, Any]]:
    """Return the findings, and by the name of the topic what the controller compares and shows."""
    findings, results = [], {}
    for topic in TOPICS:
        answer = answers[topic.name]
        if "error" in answer:
            findings.append(Problem(f"{topic.name}.answers", f"{topic.name}: {answer['error']}").finding(context.host))
            continue
        facts = answer["answer"]
        findings += [problem.finding(context.host) for problem in topic.judge(facts, context)]
        results[topic.name] = {
            "columns": dict(topic.columns(facts)),
            "compared": [[each.key, each.name, each.value] for each in topic.compared(facts, context)],
        }
    return findings, results
