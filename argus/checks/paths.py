# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths of a job: every node must see the files that the head sees and write where jobs write, and overrides must name
paths under the shared root."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from ..common.findings import ERROR, WARNING, Finding, about
from ..common.shared_root import DATASETS, MODELS, USER_CODE, bring, named, outside, under_root
from .common import CheckRequest, Facts, error_text, listed

SAME_FILE_SYSTEM = "check that all nodes mount the same file system"
# The settings with paths, and the directory of the shared root that is for them.
HOMES = {
    "data.train_files": DATASETS,
    "data.val_files": DATASETS,
    "data.custom_cls.path": USER_CODE,
    "actor_rollout_ref.model.path": MODELS,
    "actor_rollout_ref.model.tokenizer_path": MODELS,
    "actor_rollout_ref.model.lora_adapter_path": MODELS,
    "critic.model.path": MODELS,
    "critic.model.tokenizer_path": MODELS,
    "model.path": MODELS,
    "model.tokenizer_path": MODELS,
    "reward.reward_model.model_path": MODELS,
    "trainer.resume_from_path": "jobs",
}


def check_node(request: CheckRequest) -> list[Finding]:
    """All problems with the shared root on this node."""
    root = Path(request.shared_root)
    jobs = root / "jobs"
    if not jobs.is_dir():
        todo = "mount the shared root at this path on every node, then run cluster_up.yml"
        return [about("shared_root", f"{jobs} does not exist", todo)]
    found = write_findings(jobs)
    for name, size in request.files.items():
        found += file_findings(key_of(request, Path(name)), Path(name), size, root.resolve())
    return found


def write_findings(directory: Path) -> list[Finding]:
    test = directory / f".write-test-{uuid.uuid4().hex}"
    try:
        with test.open("xb") as file:
            file.write(b"x")
        test.unlink()
    except OSError as error:
        todo = f"give user ID {os.geteuid()} write permission, and check that the file system is not full"
        return [about("shared_root", f"{directory} is not writable: {error.strerror or error}", todo)]
    return []


def key_of(request: CheckRequest, path: Path) -> str:
    """The key of the JobSpec that a file belongs to."""
    if request.reward_file is not None and Path(request.reward_file) == path:
        return "reward_fn_path"
    homes = (("model", request.model), ("dataset", request.dataset), ("code_path", request.code_path))
    return next((key for key, home in homes if path.is_relative_to(home)), "shared_root")


def file_findings(key: str, path: Path, size: int | None, root: Path) -> list[Finding]:
    """Problems with one file. `size` is its size on the head; `root` is the resolved shared root."""
    try:
        real = path.resolve()
        if not real.is_relative_to(root):
            todo = f"copy it there: other nodes may not have {real}"
            return [about(key, f"{path} leads out of {named(str(root))}, to {real}", todo)]
        status = path.stat()
        if path.is_file():
            with path.open("rb"):
                pass
    except FileNotFoundError:
        what = f"{path} is a link to {path.resolve()}, which does not exist" if path.is_symlink() else None
        return [about(key, what or f"{path} does not exist", SAME_FILE_SYSTEM)]
    except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError before Python 3.13
        todo = f"give user ID {os.geteuid()} read permission, and check the file system"
        return [about(key, f"{path} cannot be read: {error_text(error)}", todo)]
    if size is not None and status.st_size != size:
        what = f"{path} has {status.st_size} bytes, but {size} bytes on the head"
        return [about(key, what, f"{SAME_FILE_SYSTEM}, and that nothing is writing to the file")]
    return []


def path_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    """Paths outside the shared root: an error if this worker has none, a warning if it has one of its own."""
    found = []
    for key, home in HOMES.items():
        if key.startswith("critic.") and not request.has_critic:
            continue
        for path in listed(request.setting(key)):
            if not isinstance(path, str) or not path.startswith("/") or under_root(path, request.shared_root):
                continue
            what, severity = outside(path, request.shared_root), ERROR
            if Path(path).exists():
                what, severity = f"{what}: this worker has it, but others may not have the same", WARNING
            found.append(Finding(key, what, bring(home), severity, key=key))
    return found
