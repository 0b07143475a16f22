# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Jobs that need a steward and have none, for example after their head was restarted."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ..launcher.archive import unclosed


def unattended(
    jobs: Path, registered: Collection[str], head: str, oldest: float, cluster: str
) -> tuple[list[str], list[str]]:
    """The jobs whose archives are not closed, and whose steward is gone: those that this cluster has submitted, and
    those that only claim to be of this head. Any job could have written the archives of the latter.

    registered: the ids of all jobs that this cluster has submitted. head: the name of the head. oldest: when the last
    heartbeat of a steward that lives can have been, in seconds since the epoch. cluster: the name of the cluster; a
    steward of an older release has none.
    """
    silent = {job: heartbeat for job, heartbeat in unclosed(jobs).items() if heartbeat["time"] < oldest}
    unknown = [
        job
        for job, heartbeat in silent.items()
        if job not in registered and heartbeat["host"] == head and heartbeat["cluster"] in ("", cluster)
    ]
    return [job for job in silent if job in registered], unknown
