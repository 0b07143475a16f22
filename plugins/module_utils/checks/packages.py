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

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .common import WARNING, accepted, finding, listed, setting

# The packages that verl's rollouts of these names call, and the extra of verl that declares them.
ENGINES = {"vllm": ("vllm", "vllm"), "sglang": ("sglang", "sglang"), "trtllm": ("tensorrt-llm", "trtllm")}


def dispensable(request: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, bool]:
    """Packages that verl declares for every job and imports only for some, and whether this job is one of those.

    Read in verl 0.9.0 and 0.9.1. Every job imports the others that they declare, dill by way of datasets.
    """
    config = request.get("config")
    loggers = listed(setting(config, "trainer.logger"))
    sources = () if request.get("reward") else facts.get("data_sources", ())
    return {
        "wandb": bool({"wandb", "tracking"} & set(loggers)),  # utils/tracking.py: Tracking
        "tensorboard": "tensorboard" in loggers,  # the same
        # utils/reward_score/prime_math/__init__.py, for data sources of these names.
        "pylatexenc": any(source.startswith("numina") for source in sources),
        # Nothing imports it; Megatron compiles a helper with it.
        "pybind11": setting(config, "actor_rollout_ref.actor.strategy") == "megatron",
    }


def requirement_findings(request: Mapping[str, Any], facts: dict[str, Any]) -> list[dict[str, str]]:
    """What verl declares against what is installed here.

    A snapshot swaps verl, not what it stands on. What it declares for every job counts; of the extra of the rollout's
    engine, the engine itself: the other pins in there tell with what verl's authors have tested.
    """
    try:
        manifest = json.loads((Path(request["code_path"]) / "manifest.json").read_text(encoding="utf-8"))
        lines = [str(line) for line in manifest.get("requirements") or ()]
    except (OSError, ValueError, AttributeError):
        return []  # whether it is a snapshot at all is the head's question
    try:
        from packaging.requirements import InvalidRequirement, Requirement
    except ImportError:
        what = "the workers have no packaging, so that what verl declares is not compared with what they have"
        return [finding("code_path", what, "add it to the image: verl needs it too", WARNING)]
    verl = f"verl {manifest.get('verl_version')}"
    engine, extra = ENGINES.get(setting(request.get("config"), "actor_rollout_ref.rollout.name"), (None, None))
    needless = {name for name, needed in dispensable(request, facts).items() if not needed}
    severity = accepted(request, "requirements")
    todo = "use an image made for this verl, another snapshot, or insist with accept: [requirements]"
    found: list[dict[str, str]] = []
    tested: list[str] = []
    versions = facts.setdefault("versions", {})
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        marker = requirement.marker
        always = marker is None or marker.evaluate({"extra": ""})
        if marker is not None and not always and (extra is None or not marker.evaluate({"extra": extra})):
            continue
        declared = f"{requirement.name}{requirement.specifier}"
        version = installed_version(request, requirement.name)
        versions[requirement.name] = version
        if version is not None and requirement.specifier.contains(version, prereleases=True):
            continue
        if not always and requirement.name != engine:
            tested += [f"{declared} (the workers have {version})"] if version else []
        elif version is not None:
            grade = WARNING if not always and same_minor(requirement, version) else severity
            what = f"{verl} declares {declared}, the workers have {version}"
            found.append(finding("code_path", what, todo, grade))
        elif requirement.name not in needless:
            what = f"{verl} declares {declared}, the workers do not have it"
            found.append(finding("code_path", what, todo, severity))
    if tested:
        what = f"{verl} is tested for {extra} with {', '.join(tested)}"
        found.append(finding("code_path", what, "nothing, if this image is known to train", WARNING))
    return found


def installed_version(request: Mapping[str, Any], name: str) -> str | None:
    """The version that the job would import: its own PYTHONPATH goes first."""
    from importlib import metadata

    own = str((request.get("environment") or {}).get("PYTHONPATH", "")).split(":")
    for distribution in metadata.distributions(name=name, path=[*filter(None, own), *sys.path]):
        return distribution.version
    return None


def same_minor(requirement: Any, version: str) -> bool:
    """Whether a pin differs in the last part alone: vllm==0.24.0 and 0.24.1."""
    from packaging.version import Version

    return all(
        each.operator == "==" and Version(each.version).release[:2] == Version(version).release[:2]
        for each in requirement.specifier
    )
