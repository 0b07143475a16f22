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

from collections.abc import Mapping
from pathlib import Path
from typing import Any

ERROR, WARNING = "error", "warning"
SFT = "sft"
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
# verl's reward managers that score one answer at a time; others, and those of users, have calls of their own.
REWARD_MANAGERS = ("naive", "dapo", "gdpo", "remote", "rate_limited")
ITEM_BYTES = {"F64": 8, "F32": 4, "float32": 4, "fp32": 4, "F16": 2, "BF16": 2, "fp16": 2, "bf16": 2}


def finding(where: str, what: str, todo: str, severity: str = ERROR) -> dict[str, str]:
    return {"where": where, "what": what, "todo": todo, "severity": severity}


def one_line(error: object) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def size_text(size: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" or size >= 10 else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def setting(config: Mapping[str, Any] | None, key: str, default: Any = None) -> Any:
    """A value of the job's configuration by its dotted key; the default where it is null or not there."""
    value: Any = config
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    # An interpolation that nobody has resolved is not a value.
    return default if value is None or (isinstance(value, str) and value.startswith("${")) else value


def listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]


def accepted(request: Mapping[str, Any], check: str) -> str:
    """The severity of a check's errors: whoever insists gets them as warnings."""
    return WARNING if check in (request.get("accept") or ()) else ERROR


def is_lfs_pointer(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(LFS_POINTER)) == LFS_POINTER


def pointer_finding(where: str, path: Path) -> dict[str, str]:
    todo = "stage the real file: `git lfs pull` where it was cloned, or download it again"
    return finding(where, f"{path} is a git-lfs pointer, not the file", todo)


def has_reward_model(request: Mapping[str, Any]) -> bool:
    config = request.get("config")
    # The second is the name up to 0.8; 0.9 still has it, as null.
    return bool(setting(config, "reward.reward_model.enable") or setting(config, "reward_model.enable"))


def reward_manager(request: Mapping[str, Any]) -> str | None:
    """The one of verl's own reward managers that calls the reward function; None for another one, and for sft."""
    config = request.get("config")
    if request["workload"] == SFT or setting(config, "reward.reward_manager.source", "register") != "register":
        return None
    # Up to 0.8 the second name; 0.9 still has it, as null.
    name = setting(config, "reward_model.reward_manager") or setting(config, "reward.reward_manager.name", "naive")
    return str(name) if name in REWARD_MANAGERS else None


def data_source_key(request: Mapping[str, Any]) -> str:
    """Since 0.9 always the same: data.reward_fn_key is still in its configuration, but nothing reads it."""
    key = str(setting(request.get("config"), "data.reward_fn_key", "data_source"))
    return "data_source" if is_since(request, (0, 9)) else key


def is_since(request: Mapping[str, Any], release: tuple[int, int]) -> bool:
    """Whether the snapshot is of this release of verl or a later one; what does not tell is taken for the latest."""
    try:
        version = (Path(request["code_path"]) / "verl" / "version" / "version").read_text(encoding="utf-8")
        major, minor = version.strip().split(".")[:2]
        return (int(major), int(minor)) >= release
    except (OSError, ValueError):
        return True


def has_critic(request: Mapping[str, Any]) -> bool:
    """trainer/ppo/utils.py: need_critic."""
    default = request["workload"] == "ppo"
    return request["workload"] != SFT and bool(setting(request.get("config"), "critic.enable", default))
