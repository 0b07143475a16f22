# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A job on its way from the head to Ray: what has to be there, its archive, and the call of the Jobs API."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Mapping
from typing import Any

from ..job.plan import Job
from ..launcher import __name__ as launcher_package
from ..launcher import (
    archive as archive_module,
)
from ..launcher import (
    attempts,
    checkpoints,
    commands,
    evidence,
    failures,
    hydra,
    launch,
    log,
    node,
    outcome,
    plan,
    processes,
    ray_api,
    redact,
    status,
    steward,
    steward_decisions,
    tasks,
    watch,
)
from ..launcher.archive import FAILED, QUEUED, SUBMITTED, Archive

LAUNCHER_MODULES = (
    archive_module,
    attempts,
    checkpoints,
    commands,
    evidence,
    failures,
    hydra,
    launch,
    log,
    node,
    outcome,
    plan,
    processes,
    ray_api,
    redact,
    status,
    steward,
    steward_decisions,
    tasks,
    watch,
)
LAUNCHER_MAIN = '''"""Run as `python3 <archive>/config/launcher`; see commands.py."""

import sys

from argus_launcher.commands import main

sys.exit(main(sys.argv[1:]))
'''


def write_launcher(archive: Archive) -> None:
    """The launcher's own source, into the archive: what ran beside the training stays known."""
    package = "config/launcher/argus_launcher"
    archive.write_text(f"{package}/__init__.py", f'"""A copy of {launcher_package}."""\n')
    for module in LAUNCHER_MODULES:
        archive.write_text(f"{package}/{module.__name__.rpartition('.')[2]}.py", inspect.getsource(module))
    archive.write_text("config/launcher/__main__.py", LAUNCHER_MAIN)


def write_archive(
    archive: Archive, given: Mapping[str, Any], job: Job, resolved: str, secrets: Mapping[str, str]
) -> None:
    archive.write_json("config/job_spec.json", given)
    archive.write_json("config/runtime_env.json", job.runtime_env)
    archive.write_text("config/submit_cmd.txt", job.submit_command())
    archive.write_json("config/plan.json", job.plan.to_json())
    archive.write_text("config/resolved.yaml", resolved)
    write_launcher(archive)
    if secrets:
        redact.store(archive.path, secrets)


def send(
    archive: Archive,
    given: Mapping[str, Any],
    job: Job,
    client: attempts.JobClient,
    *,
    resolved: str = "",
    secrets: Mapping[str, str] | None = None,
    lineage: Mapping[str, str] | None = None,
    queue: str = "",
) -> str:
    """Reserve the archive, fill it and submit; the state. Afterwards there is a job, or an archive that says why not.

    Raises FileExistsError when somebody else has taken the id meanwhile.
    resolved: the composed configuration, as YAML.
    queue: why there is no room; the submission is left to the keeper, who waits until there is.
    """
    archive.reserve()
    kept = False
    try:
        write_archive(archive, given, job, resolved, secrets or {})
        details: dict[str, Any] = {
            "workload": job.plan.workload,
            "code_id": job.plan.code_id,
            "submitted_at": time.time(),
            "lineage": dict(lineage or {}),
            "tags": job.tags,
        }
        if queue:
            archive.set_status(QUEUED, **details, attempt=1, queued_at=time.time(), reason=queue)
        else:
            attempts.prepare(archive, 1, **details)
        # Before the submission: if this process is interrupted, somebody sees to what has become of it.
        archive.run_launcher("keep")
        kept = True
        if not queue:
            attempts.submit(archive, 1, client)
    except BaseException as error:
        attempts.record_end(archive, FAILED, failures.failure("unknown", f"it could not be submitted: {error}"))
        redact.forget(archive.path)
        if not kept:
            steward.close(archive, FAILED)
        raise
    return QUEUED if queue else SUBMITTED


def same_spec(archive: Archive, given: Mapping[str, Any]) -> bool:
    """Whether the archive is of the very JobSpec."""
    return bool(archive.read_json("config/job_spec.json") == json.loads(json.dumps(given)))
