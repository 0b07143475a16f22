# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs that need a steward and have none, for example after their head was restarted."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..launcher.archive import unclosed


@dataclass(frozen=True)
class Unattended:
    """Jobs whose archives are not closed, and whose steward is gone.

    submitted: those that this cluster has submitted. unknown: those that only claim to be of this head. Any job could
    have written their archives.
    """

    submitted: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {"unattended": list(self.submitted), "unknown": list(self.unknown)}


def unattended(jobs: Path, registered: Collection[str], head: str, oldest: float, cluster: str = "") -> Unattended:
    """The unattended jobs of a directory of archives.

    registered: the ids of all jobs that this cluster has submitted. head: the name of the head. oldest: when the last
    heartbeat of a steward that lives can have been, in seconds since the epoch. cluster: the name of the cluster; a
    steward of an older release has none.
    """
    silent = {job: heartbeat for job, heartbeat in unclosed(jobs).items() if heartbeat["time"] < oldest}
    return Unattended(
        submitted=tuple(job for job in silent if job in registered),
        unknown=tuple(
            job
            for job, heartbeat in silent.items()
            if job not in registered and heartbeat["host"] == head and heartbeat["cluster"] in ("", cluster)
        ),
    )
