# SPDX-License-Identifier: GPL-3.0-or-later
"""Which jobs use what is staged, according to their archives."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from ..archive.archive import Archive, archives
from ..archive.program import Program
from ..common.shared_root import DATASETS, DEFAULT_SHARED_ROOT, JOBS, MODELS, SNAPSHOTS, resolve_path
from ..io.reading import UnreadableError

# The keys of a JobSpec that name something staged, and the directory of such names below the shared root.
USES = {"code_path": SNAPSHOTS, "model": MODELS, "dataset": DATASETS}


def used_by(shared_root: Path) -> dict[PurePosixPath, list[str]]:
    """The submission ids of jobs that have not ended, by the paths that they use relative to the shared root."""
    found: dict[PurePosixPath, list[str]] = {}
    for archive in open_archives(shared_root):
        try:
            paths = sorted(set(uses(archive.read_jobspec())))
        except (ValueError, RecursionError):
            # Nested too deeply, or not a path.
            continue
        for path in paths:
            found.setdefault(path, []).append(archive.submission_id)
    return found


def programs(shared_root: Path) -> list[str]:
    """The names of the versions of the program with which jobs were submitted that have not ended."""
    return sorted({name for archive in open_archives(shared_root) if (name := Program.recorded(archive))})


def uses(spec: Mapping[str, object]) -> Iterator[PurePosixPath]:
    """The paths that a JobSpec names, relative to the shared root, which nodes may see at another path than we do."""
    root = PurePosixPath(str(spec.get("shared_root", DEFAULT_SHARED_ROOT)))
    for key, home in USES.items():
        if spec.get(key):
            path = PurePosixPath(resolve_path(str(spec[key]), str(root), home))
            if path.is_relative_to(root):
                yield path.relative_to(root)
    # A reward model, or the data of further datasets, is named in trainer_overrides or env_vars.
    text = json.dumps(spec, ensure_ascii=False)
    for home, name in re.findall(rf"{re.escape(str(root))}/({'|'.join(USES.values())})/([\w.-]+)", text):
        yield PurePosixPath(home, name)


def users(shared_root: Path, target: Path) -> list[str]:
    """The submission ids of jobs that have not ended and use a target, or something in it."""
    own = PurePosixPath(target.relative_to(shared_root))
    return sorted({job for path, jobs in used_by(shared_root).items() if path.is_relative_to(own) for job in jobs})


def open_archives(shared_root: Path) -> list[Archive]:
    """The archives of jobs that have not ended; one whose state cannot be read has not.

    A job can write anything into its archive, and must not make staging fail. What is lost is only the protection of
    what this job itself uses.
    """
    found: list[Archive] = []
    with contextlib.suppress(UnreadableError):
        for archive in archives(shared_root / JOBS):
            state = archive.state()
            if not (state and state.ended):
                found.append(archive)
    return found
