# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collect evidence of a job on demand."""

from __future__ import annotations

import dataclasses
import subprocess
from dataclasses import dataclass
from typing import Any

from ..launcher import evidence
from ..launcher.archive import Archive
from ..launcher.evidence import Moment
from ..launcher.program import Program

# Connecting to Ray, asking the head and asking all nodes have time limits of their own, in total below this one.
SECONDS = 180


class EvidenceError(Exception):
    """The evidence could not be collected. The message is for people."""


@dataclass(frozen=True)
class Collected:
    """What job_evidence returns; plugins/modules/job_evidence.py documents it."""

    archive: str
    files: int = 0
    nodes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"nodes": list(self.nodes), "problems": list(self.problems)}


def collect(archive: Archive, timeout: float = SECONDS) -> Collected:
    """Collect evidence into the archive, with the code of this process. Raises EvidenceError."""
    before = len(archive.read_lines(evidence.INDEX))
    try:
        arguments = Program.of_this_process().arguments(archive, "evidence", Moment.DEMAND)
        done = subprocess.run(**arguments, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired as error:
        raise EvidenceError(
            f"The evidence of {archive.submission_id} is incomplete: collecting it took longer than {timeout:g} s. "
            f"{archive.path}/debug has what was collected."
        ) from error
    if done.returncode:
        raise EvidenceError(f"The evidence of {archive.submission_id} could not be collected: {done.stderr.strip()}")
    added = [entry for entry in archive.read_lines(evidence.INDEX)[before:] if entry.get("moment") == Moment.DEMAND]
    return Collected(
        archive=str(archive.path),
        files=sum(bool(entry.get("file")) for entry in added),
        nodes=tuple(sorted({str(entry["node"]) for entry in added if entry.get("node")})),
        problems=tuple(f"{entry.get('file', '')} {entry['error']}".strip() for entry in added if entry.get("error")),
    )
