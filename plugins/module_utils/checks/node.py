# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of the gate that looks at the things themselves: data, model, reward, packages and space, on the nodes.

It travels into Ray tasks by value, where there is neither Ansible nor this collection. So it imports nothing of
either, of the image's packages only what a check needs and inside of it, and a finding is a mapping with the keys of
``findings.Finding``. Of data and weights it reads footers, headers and a few rows.

A request is a mapping:

shared_root, workload, code_path, model, dataset: as in the JobSpec; all paths are absolute.
reward: the file and the function, or None.
environment: the environment variables of the job.
files: what has to be there on every node: paths, or a mapping of paths to their sizes on the head (None: any).
accept: checks whose errors the user takes as warnings: "requirements", "space".
config: the composed Hydra configuration of the job, or None when it is not known; then less is checked.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .common import finding, one_line


def check_node(request: Mapping[str, Any]) -> list[dict[str, str]]:
    """Whether this node sees what the head has seen, and can write where jobs write."""
    root = Path(request["shared_root"])
    jobs = root / "jobs"
    if not jobs.is_dir():
        todo = "mount the shared root at this path on every node, and run cluster_up.yml"
        return [finding("shared_root", f"{jobs} is not there", todo)]
    found = write_findings(jobs)
    files = request.get("files") or ()
    sizes = files if isinstance(files, Mapping) else dict.fromkeys(files)
    for name, size in sizes.items():
        found += seen_findings(request, Path(name), size, root.resolve())
    return found


def write_findings(directory: Path) -> list[dict[str, str]]:
    test = directory / f".write-test-{uuid.uuid4().hex}"
    try:
        with test.open("xb") as file:
            file.write(b"x")
        test.unlink()
    except OSError as error:
        todo = f"give user id {os.geteuid()} permission to write there, and see that the file system is not full"
        return [finding("shared_root", f"{directory} is not writable: {error.strerror or error}", todo)]
    return []


def key_of(request: Mapping[str, Any], path: Path) -> str:
    """The key of the JobSpec that a file belongs to."""
    if request.get("reward") and Path(request["reward"][0]) == path:
        return "reward_fn_path"
    for key in ("model", "dataset", "code_path"):
        home = request.get(key)
        if home and (Path(home) == path or Path(home) in path.parents):
            return key
    return "shared_root"


def seen_findings(request: Mapping[str, Any], path: Path, size: int | None, root: Path) -> list[dict[str, str]]:
    where = key_of(request, path)
    try:
        real = path.resolve()
        if root != real and root not in real.parents:
            todo = f"copy it to {root}: what lies elsewhere may be missing on another node"
            return [finding(where, f"{path} leads out of the shared root, to {real}", todo)]
        status = path.stat()
        if path.is_file():
            with path.open("rb"):
                pass
    except FileNotFoundError:
        what = f"{path} is a link to {path.resolve()}, which is not there" if path.is_symlink() else None
        return [finding(where, what or f"{path} is not there", "see that all nodes mount the same file system")]
    except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError before Python 3.13
        todo = f"give user id {os.geteuid()} permission to read it, and see that the file system is well"
        return [finding(where, f"{path} cannot be read: {one_line(error)}", todo)]
    if size is not None and status.st_size != size:
        what = f"{path} has {status.st_size} bytes, on the head it has {size}"
        return [finding(where, what, "see that all nodes mount the same file system, and that nobody writes to it")]
    return []
