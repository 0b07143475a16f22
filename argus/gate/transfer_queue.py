# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How a job uses TransferQueue, according to its composed configuration."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..checks.common import Configuration
from ..jobspec.overrides import VERL_UNITS
from ..jobspec.plan import Job
from ..launcher.room import UNITS_KEY

SIMPLE = "SimpleStorage"
# Their actors have names of their own in each job. Other backends start services with a fixed port or name: a second
# job ends those of the first (transfer_queue/storage/bootstrap: `pkill mooncake_master`), or shares its samples.
SEPARATE_BACKENDS = (SIMPLE, "RayStore")


@dataclass(frozen=True)
class QueueSettings:
    """used: False for verl's former trainer, which has no TransferQueue.

    storage_units: the number of its storage units, each with a CPU.
    exclusive_backend: a backend that cannot serve two jobs of a cluster; "" for the others.
    """

    used: bool = True
    storage_units: int = 0
    exclusive_backend: str = ""

    @classmethod
    def of(cls, config: Configuration) -> QueueSettings:
        # trainer/main_ppo.py:main
        if config.get("trainer.use_v1", True) is False:
            return cls(used=False)
        backend = str(config.get("transfer_queue.backend.storage_backend", SIMPLE))
        return cls(
            storage_units=max(0, config.number(UNITS_KEY, VERL_UNITS)) if backend == SIMPLE else 0,
            exclusive_backend="" if backend in SEPARATE_BACKENDS else backend,
        )


def with_queue(job: Job, queue: QueueSettings) -> Job:
    """A job whose release of verl has TransferQueue, as its configuration uses it."""
    if not job.plan.transfer_queue:
        return job
    plan = replace(
        job.plan,
        transfer_queue=queue.used,
        storage_units=queue.storage_units,
        exclusive_backend=queue.exclusive_backend,
    )
    return replace(job, plan=plan)
