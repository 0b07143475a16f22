# SPDX-License-Identifier: GPL-3.0-or-later
"""Collect evidence of a job on demand."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from typing import Any

from ..archive.archive import Archive
from ..evidence import evidence
from ..evidence.evidence import Moment
from ..ray.tasks import in_thread, last_line
from .services import OperationError

# Connecting to Ray, asking the head and asking all nodes have time limits of their own, in total below this one.
SECONDS = 180
END_SECONDS = 30


def collect(archive: Archive, timeout: float = SECONDS) -> dict[str, Any]:
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
    return collected(archive, entries)


def collected(archive: Archive, entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What job_evidence returns; plugins/modules/job_evidence.py documents it."""
    return {
        "archive": str(archive.path),
        "files": sum(bool(entry.get("file")) for entry in entries),
        "nodes": sorted({str(entry["node"]) for entry in entries if entry.get("node")}),
        "problems": [f"{entry.get('file', '')} {entry['error']}".strip() for entry in entries if entry.get("error")],
    }
