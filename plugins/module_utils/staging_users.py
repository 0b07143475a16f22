# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which jobs use what is staged, read from their archives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils import jobspec
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import ENDED, Archive

# The key of a JobSpec that names it, and where a name lies below the shared root.
USES = {
    "snapshot": ("code_path", "common/code/verl"),
    "model": ("model", "common/models"),
    "rl_dataset": ("dataset", "datasets"),
    "sft_dataset": ("dataset", "datasets"),
}


def used_by(shared_root: Path) -> dict[PurePosixPath, list[str]]:
    """The submission ids of jobs that have not ended, by what they use, relative to the shared root."""
    found: dict[PurePosixPath, list[str]] = {}
    for submission_id, spec in unended(shared_root / "jobs"):
        for key, home in dict.fromkeys(USES.values()):
            value, root = spec.get(key), spec.get("shared_root", jobspec.OPTIONS["shared_root"]["default"])
            if value:
                path = PurePosixPath(jobspec.resolve_path(value, root, home))
                # Nodes may see the shared root elsewhere than this machine does.
                if path.is_relative_to(root):
                    found.setdefault(path.relative_to(root), []).append(submission_id)
    return found


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
