# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence: what Ray says of itself at a moment of a job's life, kept under ``debug/``.

Run on its own: ``python3 <archive>/config/launcher evidence <archive> <moment>``. In a process of its own
it can neither slow the trainer down nor be ended together with it.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from .archive import Archive

LIMIT = 1000
SECONDS = 20


def _plain(value: Any) -> Any:
    """A record of Ray's as plain JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if hasattr(value, "dict"):
        return value.dict()
    return str(value)


def _ray_status() -> str:
    done = subprocess.run(["ray", "status", "-v"], capture_output=True, text=True, timeout=SECONDS, check=False)
    return done.stdout + done.stderr


def _ray_job_list() -> str:
    from ray.job_submission import JobSubmissionClient

    jobs = [_plain(job) for job in JobSubmissionClient().list_jobs()]
    for job in jobs:
        # The environments of other people's jobs are none of this archive's business.
        job.pop("runtime_env", None)
    return json.dumps(jobs, indent=2, default=_plain)


def _ray_list_nodes() -> str:
    from ray.util.state import list_nodes

    return json.dumps([_plain(node) for node in list_nodes(limit=LIMIT, timeout=SECONDS)], indent=2, default=_plain)


def _ray_list_actors() -> str:
    from ray.util.state import list_actors

    actors = list_actors(limit=LIMIT, timeout=SECONDS, detail=False)
    return json.dumps([_plain(actor) for actor in actors], indent=2, default=_plain)


SOURCES: dict[str, Callable[[], str]] = {
    "ray_status.txt": _ray_status,
    "ray_job_list.json": _ray_job_list,
    "ray_list_nodes.json": _ray_list_nodes,
    "ray_list_actors.json": _ray_list_actors,
}


def collect(archive: Archive, moment: str, sources: dict[str, Callable[[], str]] | None = None) -> list[str]:
    """Write what can be had, and in place of what cannot, why. Returns the names of the files."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    names = []
    for name, source in (SOURCES if sources is None else sources).items():
        try:
            text = source()
        except Exception as error:  # whatever it is, the rest is still wanted
            name, text = f"{name}.error", f"{type(error).__name__}: {error}\n"
        names.append(f"debug/{stamp}-{moment}-{name}")
        archive.write_text(names[-1], text)
    return names
