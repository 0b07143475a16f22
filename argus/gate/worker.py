# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the gate runs on one worker."""

from __future__ import annotations

import contextlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from ..checks.common import CheckRequest, Configuration, Facts
from ..checks.paths import check_node
from ..checks.worker import check_worker
from ..common.findings import Finding
from .composition import Composition, Overrides, compose


@dataclass(frozen=True)
class Inspection:
    """What a worker reports about a job.

    python_path: PYTHONPATH as the image of the nodes sets it.
    on_node: what every worker is checked for.
    """

    findings: tuple[Finding, ...] = ()
    composition: Composition = field(default_factory=Composition)
    facts: Facts = field(default_factory=Facts)
    python_path: str = ""
    on_node: tuple[Finding, ...] = ()


def inspect_job(request: CheckRequest, module: str, overrides: Overrides) -> Inspection:
    """Compose the configuration of the trainer `module`, and check everything that it names."""
    image = os.environ.get("PYTHONPATH", "")
    path = ":".join(filter(None, (request.environment.get("PYTHONPATH", ""), *image.split(":"))))
    environment = {**request.environment, **({"PYTHONPATH": path} if path else {})}
    with ThreadPoolExecutor(1) as beside:
        # A process of its own composes, and the checks need its answer: meanwhile, what they need otherwise.
        composing = beside.submit(compose, request.code_path, module, overrides, environment)
        on_node = tuple(check_node(request))
        with contextlib.suppress(ImportError):
            import pyarrow.parquet  # noqa: F401
        composition = composing.result()
    config = None if composition.config is None else Configuration(composition.config)
    found, facts = check_worker(replace(request, config=config, environment=environment))
    return Inspection(tuple(found), composition, facts, image, on_node)
