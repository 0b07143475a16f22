# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The JobSpec of an earlier job, from the registry, and whether it was changed in the job's archive."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..common.findings import WARNING, Finding
from ..common.shared_root import archive_path
from ..jobspec.limits import limit_findings
from ..jobspec.owned import LOCAL_DIR, OVERRIDES, checkpoint_path, repeats
from ..launcher.hydra import override_list
from ..launcher.reading import UnreadableError, read_mapping
from .registry import ENTRY_BYTES, Registry
from .request import Request
from .services import OperationError

FILE = "config/job_spec.json"
# More names would not help to find the cause.
MAX_NAMES = 10


def resubmission(request: Request, submission_id: str, registry: Registry) -> Request:
    """The request to submit a job again with the JobSpec with which it was submitted.

    Jobs can write to archives, so the JobSpec there may ask for other secrets. Raises OperationError.
    """
    jobspec, warnings = original(registry, submission_id)
    without_id = {key: value for key, value in jobspec.items() if key != "submission_id"}
    return replace(request, jobspec=without_id, resubmitted_from=submission_id, warnings=warnings)


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
    return _without_local_dir(job.jobspec, archive), tuple(_differences(job.jobspec, archive))


def _without_local_dir(jobspec: Mapping[str, Any], archive: Path) -> Mapping[str, Any]:
    """The JobSpec without the directory of this job's checkpoints, which it may repeat: the new job has another."""
    overrides = override_list(jobspec.get(OVERRIDES) or ())
    local_dir = {LOCAL_DIR: checkpoint_path(str(archive))}
    kept = [override for override in overrides if not repeats(override, local_dir)]
    return jobspec if kept == overrides else {**jobspec, OVERRIDES: kept}


def _differences(jobspec: Mapping[str, Any], archive: Path) -> Iterator[Finding]:
    try:
        archived = read_mapping(archive.parent, f"{archive.name}/{FILE}", ENTRY_BYTES)
    except FileNotFoundError:
        # Archives may be removed.
        return
    except (UnreadableError, OSError) as error:
        yield _changed(archive, f"cannot be compared with the original: {error}")
        return
    names = changed_keys(jobspec, archived)
    if names:
        listed = ", ".join(names[:MAX_NAMES]) + (
            f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
        )
        yield _changed(archive, f"was changed after the submission: {listed}")


def _changed(archive: Path, what: str) -> Finding:
    todo = "nothing: the original is used; submit a file with submit.yml to use another JobSpec"
    return Finding(f"{archive}/{FILE}", what, todo, WARNING)


def changed_keys(submitted: Mapping[str, Any], archived: Mapping[str, Any]) -> list[str]:
    """The keys in which two JobSpecs differ, those in mappings with dots."""
    problem = limit_findings(archived)
    if problem:
        return [f"{problem[0].where} {problem[0].what}"]
    found = []
    for key in sorted({*submitted, *archived}):
        before, after = submitted.get(key), archived.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            parts = sorted({*before, *after})
            found += [f"{key}.{part}" for part in parts if _text(before, part) != _text(after, part)]
        elif _text(submitted, key) != _text(archived, key):
            found.append(key)
    return [name if len(name) <= 100 else f"{name[:100]}…" for name in found]


def _text(given: Mapping[str, Any], key: str) -> str:
    """A value as text; NaN, which a JobSpec may have, does not equal itself."""
    return json.dumps(given[key], sort_keys=True) if key in given else ""
