# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collect evidence of a job on demand."""

from __future__ import annotations

import dataclasses
import signal
from concurrent.futures import wait
from dataclasses import dataclass
from typing import Any

from ..launcher import evidence
from ..launcher.archive import Archive
from ..launcher.evidence import Moment
from ..launcher.tasks import in_thread, last_line
from .services import OperationError

# Connecting to Ray, asking the head and asking all nodes have time limits of their own, in total below this one.
SECONDS = 180
END_SECONDS = 30


@dataclass(frozen=True)
class Collected:
    """What job_archive returns with state=examined; plugins/modules/job_archive.py documents it."""

    archive: str
    files: int = 0
    nodes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"nodes": list(self.nodes), "problems": list(self.problems)}


def collect(archive: Archive, timeout: float = SECONDS) -> Collected:
    """Collect evidence into the archive, for at most `timeout` seconds. Raises OperationError."""
    # A disk or a node that hangs does not keep this process from giving an answer.
    collection = in_thread(evidence.collect, archive, Moment.DEMAND)
    if not wait([collection], timeout).done:
        # It may also keep this process from ending after its answer.
        signal.alarm(END_SECONDS)
        raise OperationError(
            f"The evidence of {archive.submission_id} is incomplete: collecting it took longer than {timeout:g} s. "
            f"{archive.path}/debug has what was collected."
        )
    try:
        entries = collection.result()
    except Exception as error:
        message = f"The evidence of {archive.submission_id} could not be collected: {last_line(error)}"
        raise OperationError(message) from error
    return Collected(
        archive=str(archive.path),
        files=sum(bool(entry.get("file")) for entry in entries),
        nodes=tuple(sorted({str(entry["node"]) for entry in entries if entry.get("node")})),
        problems=tuple(f"{entry.get('file', '')} {entry['error']}".strip() for entry in entries if entry.get("error")),
    )
