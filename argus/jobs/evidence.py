# SPDX-License-Identifier: Apache-2.0
"""Collects evidence of a job on demand, with a time limit: what Ray and the job's nodes report now."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from concurrent.futures import wait
from typing import Any

from ..archive.archive import Archive
from ..evidence import evidence
from ..evidence.evidence import Moment
from ..ray.tasks import error_line, start_in_thread
from .services import OperationError

# More than the sum of the limits for connecting to Ray, for asking the head and for asking all nodes.
COLLECT_TIMEOUT_SECONDS = 180
EXIT_TIMEOUT_SECONDS = 30


def collect(archive: Archive, timeout: float = COLLECT_TIMEOUT_SECONDS) -> dict[str, Any]:
    """Collect evidence into the archive, for at most `timeout` seconds. Raises OperationError."""
    # In a thread, a disk or a node that hangs does not keep this process from giving an answer.
    collection = start_in_thread(evidence.collect, archive, Moment.DEMAND)
    if not wait([collection], timeout).done:
        # The thread may also keep this process from ending after its answer.
        signal.alarm(EXIT_TIMEOUT_SECONDS)
        raise OperationError(
            f"The evidence of {archive.submission_id} is incomplete: collecting it took longer than {timeout:g} s. "
            f"{archive.path}/debug has what was collected."
        )
    try:
        entries = collection.result()
    except Exception as error:
        message = f"The evidence of {archive.submission_id} could not be collected: {error_line(error)}"
        raise OperationError(message) from error
    return collection_result(archive, entries)


def collection_result(archive: Archive, entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The result of `argus evidence`. entries: the lines that the collection added to the index of the evidence."""
    return {
        "archive": str(archive.path),
        "files": sum(bool(entry.get("file")) for entry in entries),
        "nodes": sorted({str(entry["node"]) for entry in entries if entry.get("node")}),
        "problems": [f"{entry.get('file', '')} {entry['error']}".strip() for entry in entries if entry.get("error")],
    }
