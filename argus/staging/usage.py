# SPDX-License-Identifier: Apache-2.0
"""Which staged items and versions of the program are used by jobs that have not ended, according to their archives."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from ..archive.archive import Archive, archives
from ..archive.program import Program
from ..common.shared_root import CODE_DIR, DATASETS_DIR, DEFAULT_SHARED_ROOT, JOBS_DIR, MODELS_DIR, full_path
from ..io.reading import UnreadableError

# The keys of a JobSpec that name a staged item, and the directory of such items below the shared root.
STAGED_KEYS = {"code_path": CODE_DIR, "model": MODELS_DIR, "dataset": DATASETS_DIR}


def jobs_by_path(shared_root: Path) -> dict[PurePosixPath, list[str]]:
    """The submission ids of jobs that have not ended, by the paths that they use, relative to the shared root."""
    jobs: dict[PurePosixPath, list[str]] = {}
    for archive in unfinished_archives(shared_root):
        try:
            paths = sorted(set(named_paths(archive.read_jobspec())))
        except (ValueError, RecursionError):
            # Nested too deeply, or not a path.
            continue
        for path in paths:
            jobs.setdefault(path, []).append(archive.submission_id)
    return jobs


def jobs_using(shared_root: Path, target: Path) -> list[str]:
    """The submission ids of jobs that have not ended and use a target, or something in it."""
    relative = PurePosixPath(target.relative_to(shared_root))
    jobs = jobs_by_path(shared_root)
    return sorted({job for path, users in jobs.items() if path.is_relative_to(relative) for job in users})


def programs_in_use(shared_root: Path) -> list[str]:
    """The names of the versions of this program with which the jobs were submitted that have not ended."""
    return sorted({name for archive in unfinished_archives(shared_root) if (name := Program.recorded(archive))})


def named_paths(spec: Mapping[str, object]) -> Iterator[PurePosixPath]:
    """The paths of staged items that a JobSpec names, relative to the shared root.

    The JobSpec has the path of the shared root in the nodes, which may differ from the one of this process.
    """
    root = PurePosixPath(str(spec.get("shared_root", DEFAULT_SHARED_ROOT)))
    for key, directory in STAGED_KEYS.items():
        if spec.get(key):
            path = PurePosixPath(full_path(str(spec[key]), str(root), directory))
            if path.is_relative_to(root):
                yield path.relative_to(root)
    # trainer_overrides or env_vars may name further items: a reward model, or another dataset.
    text = json.dumps(spec, ensure_ascii=False)
    for directory, name in re.findall(rf"{re.escape(str(root))}/({'|'.join(STAGED_KEYS.values())})/([\w.-]+)", text):
        yield PurePosixPath(directory, name)


def unfinished_archives(shared_root: Path) -> list[Archive]:
    """The archives of jobs that have not ended. A job whose state cannot be read counts as one.

    A job can write anything into its archive. This must not make staging fail; at worst, it leaves unprotected what
    this job itself uses.
    """
    unfinished: list[Archive] = []
    with contextlib.suppress(UnreadableError):
        for archive in archives(shared_root / JOBS_DIR):
            state = archive.state()
            if not (state and state.ended):
                unfinished.append(archive)
    return unfinished
