# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the packages that workers have against those that verl requires."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from ..common.findings import WARNING, Finding, about
from .common import CheckRequest, Facts, listed

# The packages that verl's rollouts of these names call, and the extra of verl that declares them.
ENGINES = {"vllm": ("vllm", "vllm"), "sglang": ("sglang", "sglang"), "trtllm": ("tensorrt-llm", "trtllm")}
# verl 0.9 imports it for PPO and GRPO, and does not declare it: verl's published image may lack it.
QUEUE = "transferqueue"
WITHOUT_QUEUE = "add it to the image, as images/cuda does, set trainer.use_v1=False, or set accept: [requirements]"
# With an older version, Ray silently ignores breakpoints (ray/util/debugpy.py).
DEBUGPY = (1, 8)


def debugger_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    if request.debugger != "post_mortem":
        return []
    version = re.findall(r"\d+", installed_version(request, "debugpy") or "")
    if tuple(map(int, version[:2])) >= DEBUGPY:
        return []
    todo = "add debugpy 1.8 or newer to the image, or set debugger: legacy"
    return [about("debugger", "the workers do not have debugpy 1.8 or newer", todo)]


def requirement_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    """What verl requires against what is installed here.

    A snapshot replaces verl, not its dependencies. Requirements of every job count. Of the extra of the rollout's
    engine, only the engine itself counts: the other pins there only show what verl's authors tested with.
    """
    try:
        manifest = json.loads(Path(request.code_path, "manifest.json").read_text(encoding="utf-8"))
        lines = [str(line) for line in manifest.get("requirements") or ()]
    except (OSError, ValueError, AttributeError):
        return []  # the head checks whether it is a snapshot
    verl = f"verl {manifest.get('verl_version')}"
    engine, extra = ENGINES.get(request.setting("actor_rollout_ref.rollout.name"), ("", ""))
    severity = request.severity_of("requirements")
    todo = "use an image built for this verl, use another snapshot, or set accept: [requirements]"
    unneeded = unneeded_packages(request, facts)
    facts.versions = {}
    found: list[Finding] = []
    tested: list[str] = []
    for requirement, always in applicable(lines, extra):
        name = requirement.name
        version = facts.versions[name] = installed_version(request, name)
        declared = f"{name}{requirement.specifier}"
        if version is not None and requirement.specifier.contains(version, prereleases=True):
            continue
        if not always and name != engine:
            tested += [f"{declared} (the workers have {version})"] if version else []
        elif version is not None:
            close = not always and same_minor(requirement, version)
            what = f"{verl} requires {declared}, but the workers have {version}"
            found.append(about("code_path", what, todo, WARNING if close else severity))
        elif name not in unneeded:
            found.append(
                about("code_path", f"{verl} requires {declared}, which the workers do not have", todo, severity)
            )
    # trainer/main_ppo.py:main
    uses_queue = request.is_since((0, 9)) and request.setting("trainer.use_v1", True) is not False
    if not request.is_sft and uses_queue and installed_version(request, QUEUE) is None:
        what = f"{verl} imports TransferQueue without declaring it, and the workers do not have it"
        found.append(about("code_path", what, WITHOUT_QUEUE, severity))
    if tested:
        what = f"{verl} is tested for {extra} with {', '.join(tested)}"
        found.append(about("code_path", what, "no action is needed if this image is known to work", WARNING))
    return found


def applicable(lines: list[str], extra: str) -> Iterator[tuple[Any, bool]]:
    """The requirements that apply here, and whether they are those of every job rather than of the extra."""
    from packaging.requirements import InvalidRequirement, Requirement

    for line in lines:
        with contextlib.suppress(InvalidRequirement):
            requirement = Requirement(line)
            marker = requirement.marker
            always = marker is None or marker.evaluate({"extra": ""})
            if marker is None or always or (extra and marker.evaluate({"extra": extra})):
                yield requirement, always


def unneeded_packages(request: CheckRequest, facts: Facts) -> set[str]:
    """Packages that verl requires for every job, but that this job never imports.

    Read in verl 0.9.0 and 0.9.1. Every job imports the other packages that they require, dill by way of datasets.
    """
    loggers = set(listed(request.setting("trainer.logger")))
    sources = () if request.reward_file else facts.data_sources or ()
    needed = {
        "wandb": bool({"wandb", "tracking"} & loggers),  # utils/tracking.py: Tracking
        "tensorboard": "tensorboard" in loggers,  # utils/tracking.py: Tracking
        # utils/reward_score/prime_math/__init__.py, for data sources of these names.
        "pylatexenc": any(source.startswith("numina") for source in sources),
        # Nothing imports it; Megatron compiles a helper with it.
        "pybind11": request.setting("actor_rollout_ref.actor.strategy") == "megatron",
    }
    return {name for name, is_needed in needed.items() if not is_needed}


def installed_version(request: CheckRequest, name: str) -> str | None:
    """The version that the job would import. The job's own PYTHONPATH goes first."""
    own = str(request.environment.get("PYTHONPATH", "")).split(":")
    for distribution in metadata.distributions(name=name, path=[*filter(None, own), *sys.path]):
        return distribution.version
    return None


def same_minor(requirement: Any, version: str) -> bool:
    """Whether a version differs from a pin only in its last part, as 0.24.1 from vllm==0.24.0."""
    from packaging.version import Version

    return all(
        each.operator == "==" and Version(each.version).release[:2] == Version(version).release[:2]
        for each in requirement.specifier
    )
