# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JobSpec of an earlier job, from the registry, and whether it was changed in the job's archive."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..common.findings import WARNING, Finding
from ..common.shared_root import archive_path
from ..jobspec.owned import LOCAL_DIR, OVERRIDES, checkpoint_path, repeats
from ..launcher.hydra import override_list
from ..launcher.reading import UnreadableError, read_mapping
from .registry import ENTRY_BYTES, Registry
from .request import Request
from .services import OperationError

FILE = "config/job_spec.json"


def resubmission(request: Request, submission_id: str, registry: Registry) -> Request:
    """The request to submit a job again with the JobSpec with which it was submitted.

    Jobs can write to archives, so the JobSpec there may ask for other secrets. Raises OperationError.
    """
    jobspec, warnings = original(registry, submission_id)
    without_id = {key: value for key, value in jobspec.items() if key != "submission_id"}
    known = {"jobspec": without_id, "resubmitted_from": submission_id, "warnings": warnings}
    return request.model_copy(update=known)


def original(registry: Registry, submission_id: str) -> tuple[Mapping[str, Any], tuple[Finding, ...]]:
    """The JobSpec of a registered job, and warnings about the one in its archive.

    Raises OperationError if the job is not registered.
    """
    todo = "submit its JobSpec file instead, or read and submit config/job_spec.json of its archive: -e jobspec=FILE"
    try:
        job = registry.read(submission_id)
    except UnreadableError as error:
        raise OperationError(f"{submission_id} cannot be submitted again: {error}; {todo}") from error
    if job is None:
        raise OperationError(
            f"{submission_id} is not registered on this head (cluster_down removes the registry), and jobs can write "
            f"to archives; {todo}"
        )
    archive = Path(archive_path(job.shared_root, submission_id))
    return _without_local_dir(job.jobspec, archive), difference(job.jobspec, archive)


def _without_local_dir(jobspec: Mapping[str, Any], archive: Path) -> Mapping[str, Any]:
    """The JobSpec without the directory of this job's checkpoints, which it may repeat: the new job has another."""
    overrides = override_list(jobspec.get(OVERRIDES) or ())
    local_dir = {LOCAL_DIR: checkpoint_path(str(archive))}
    kept = [override for override in overrides if not repeats(override, local_dir)]
    return jobspec if kept == overrides else {**jobspec, OVERRIDES: kept}


def difference(jobspec: Mapping[str, Any], archive: Path) -> tuple[Finding, ...]:
    todo = "nothing: the original is used; submit a file with submit.yml to use another JobSpec"
    try:
        if read_mapping(archive / FILE, ENTRY_BYTES) == jobspec:
            return ()
        problem = "was changed after the submission"
    except FileNotFoundError:
        return ()
    except UnreadableError as error:
        problem = f"cannot be compared with the original: {error}"
    return (Finding(f"{archive}/{FILE}", problem, todo, WARNING),)
