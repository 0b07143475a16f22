# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which jobs use what is staged, read from their archives."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ..launcher.archive import ENDED, Archive
from ..shared_root import DATASETS, DEFAULT_SHARED_ROOT, MODELS, SNAPSHOTS, resolve_path

# The key of a JobSpec that names something staged, and where a name lies below the shared root.
USES = {"code_path": SNAPSHOTS, "model": MODELS, "dataset": DATASETS}


def used_by(shared_root: Path) -> dict[PurePosixPath, list[str]]:
    """The submission ids of jobs that have not ended, by what they use, relative to the shared root."""
    found: dict[PurePosixPath, list[str]] = {}
    for submission_id, spec in unended(shared_root / "jobs"):
        for path in sorted(set(uses(spec))):
            found.setdefault(path, []).append(submission_id)
    return found


def uses(spec: Mapping[str, Any]) -> Iterator[PurePosixPath]:
    """What a JobSpec names, relative to the shared root, of which nodes may see it elsewhere than this machine does."""
    root = PurePosixPath(spec.get("shared_root", DEFAULT_SHARED_ROOT))
    for key, home in USES.items():
        if spec.get(key):
            path = PurePosixPath(resolve_path(spec[key], str(root), home))
            if path.is_relative_to(root):
                yield path.relative_to(root)
    # A reward model, or data of more than one dataset, is somewhere in trainer_overrides or env_vars.
    somewhere = json.dumps(spec, ensure_ascii=False)
    for home, name in re.findall(rf"{re.escape(str(root))}/({'|'.join(USES.values())})/([\w.-]+)", somewhere):
        yield PurePosixPath(home, name)


def users(shared_root: Path, target: Path) -> list[str]:
    """The submission ids of jobs that have not ended and use a target, or something in it."""
    own = PurePosixPath(target.relative_to(shared_root))
    return sorted({job for path, jobs in used_by(shared_root).items() if path.is_relative_to(own) for job in jobs})


def unended(jobs: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Jobs that have not ended, or wait for something, with their JobSpecs."""
    for file in sorted(jobs.glob("*/config/job_spec.json")):
        archive = Archive(file.parents[1])
        if archive.status().get("state") not in ENDED:
            yield archive.submission_id, archive.read_json("config/job_spec.json") or {}
