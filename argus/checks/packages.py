# SPDX-License-Identifier: Apache-2.0
"""Checks the packages of a worker against those that the snapshot's verl and the job require."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from ..common.findings import WARNING, Finding, about
from ..common.text import one_line
from ..io.reading import UnreadableError, read_text
from .request import MAX_VERSION_CHARS, CheckRequest, Facts, as_list

# By the name of a rollout: the package that verl calls for it, and the extra of verl that declares the package.
ENGINES = {"vllm": ("vllm", "vllm"), "sglang": ("sglang", "sglang"), "trtllm": ("tensorrt-llm", "trtllm")}
# verl 0.9 imports TransferQueue for PPO and GRPO, but declares it in no extra or in that of all backends: verl's
# published image may lack the package, or have a version that is too old.
QUEUE_PACKAGE, BACKENDS_EXTRA = "transferqueue", "verl-core"
QUEUE_REMEDY = "install it in the image, as images/cuda does, set trainer.use_v1=False, or set accept: [requirements]"
KNOWN_TO_WORK = "no action is needed if this image is known to work"
MAX_NAMED_CONFLICTS = 3
# The file in which a recipe says for which verl it is made.
REQUIRED_VERL_FILE, MAX_REQUIRED_VERL_BYTES = "REQUIRED_VERL.txt", 1 << 16
# With an older version, Ray silently ignores breakpoints (ray/util/debugpy.py).
MIN_DEBUGPY_VERSION = (1, 8)


def debugger_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    if request.debugger != "post_mortem":
        return []
    version = re.findall(r"\d+", installed_version(request, "debugpy") or "")
    if tuple(map(int, version[:2])) >= MIN_DEBUGPY_VERSION:
        return []
    remedy = "add debugpy 1.8 or newer to the image, or set debugger: legacy"
    return [about("debugger", "the workers do not have debugpy 1.8 or newer", remedy)]


def requirement_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    """Compare verl's requirements with the installed packages, whose versions become facts.

    A snapshot replaces verl, but not the packages that verl depends on. What verl requires for every job counts. Of
    the extra for the rollout's engine, only the engine itself and TransferQueue count: the other pins there only show
    with which versions verl's authors tested.
    """
    manifest = snapshot_manifest(request.code_path)
    if not manifest:
        return []  # the head checks whether it is a snapshot
    verl = f"verl {manifest.get('verl_version')}"
    engine, extra = ENGINES.get(request.setting("actor_rollout_ref.rollout.name"), ("", ""))
    severity = request.severity_of("requirements")
    image_remedy = "use an image built for this verl, use another snapshot, or set accept: [requirements]"
    unneeded = unneeded_packages(request, facts)
    # trainer/main_ppo.py:main
    is_v1 = request.verl_at_least((0, 9)) and request.setting("trainer.use_v1", True) is not False
    imported = [QUEUE_PACKAGE] if is_v1 and not request.is_sft else []
    extras = [extra, BACKENDS_EXTRA] if imported else [extra]
    imported += [engine] if engine else []
    facts.versions = {}
    findings: list[Finding] = []
    tested: list[str] = []
    for requirement, always in applicable_requirements(manifest, extras):
        name = requirement.name.lower()
        version = facts.versions[name] = installed_version(request, name)
        declared = f"{requirement.name}{requirement.specifier}"
        remedy = QUEUE_REMEDY if name == QUEUE_PACKAGE else image_remedy
        if version is not None and requirement.specifier.contains(version, prereleases=True):
            continue
        if not always and name not in imported:
            tested += [f"{declared} (the workers have {version})"] if version else []
        elif version is not None:
            is_newer = not always and name == engine and is_pin_or_newer(requirement, version)
            problem = f"{verl} requires {declared}, but the workers have {version}"
            findings.append(about("code_path", problem, remedy, WARNING if is_newer else severity))
        elif name not in unneeded:
            problem = f"{verl} requires {declared}, which the workers do not have"
            findings.append(about("code_path", problem, remedy, severity))
    is_undeclared = QUEUE_PACKAGE in imported and QUEUE_PACKAGE not in facts.versions
    if is_undeclared and installed_version(request, QUEUE_PACKAGE) is None:
        problem = f"{verl} imports TransferQueue without declaring it, and the workers do not have it"
        findings.append(about("code_path", problem, QUEUE_REMEDY, severity))
    if tested:
        problem = f"{verl} is tested for {extra or BACKENDS_EXTRA} with {', '.join(tested)}"
        findings.append(about("code_path", problem, KNOWN_TO_WORK, WARNING))
    if conflicts := unmet_requirements(request, imported):
        more = f" and {len(conflicts) - MAX_NAMED_CONFLICTS} more" if len(conflicts) > MAX_NAMED_CONFLICTS else ""
        problem = f"packages of the workers do not fit together: {', '.join(conflicts[:MAX_NAMED_CONFLICTS])}{more}"
        findings.append(about("code_path", problem, f"{KNOWN_TO_WORK}; `pip check` there names all", WARNING))
    return findings


def snapshot_manifest(code_path: str) -> dict[str, Any]:
    """The manifest of a snapshot; empty without one."""
    try:
        manifest = json.loads(Path(code_path, "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def parse_requirements(lines: Iterable[object]) -> list[Any]:
    """The requirements in these lines; malformed lines are skipped."""
    from packaging.requirements import InvalidRequirement, Requirement

    requirements = []
    for line in lines:
        with contextlib.suppress(InvalidRequirement):
            requirements.append(Requirement(str(line)))
    return requirements


def applicable_requirements(manifest: dict[str, Any], extras: list[str]) -> Iterable[tuple[Any, bool]]:
    """The requirements that apply here, and whether they are those of every job rather than of an extra.

    verl's extras name each other, as in verl[verl-core].
    """
    requirements = parse_requirements(manifest.get("requirements") or ())
    requirements_by_text: dict[str, tuple[Any, bool]] = {}
    names = ["", *filter(None, extras)]
    for extra in names:
        for requirement in requirements:
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            if requirement.name == "verl":
                names += sorted(requirement.extras.difference(names))
            requirements_by_text.setdefault(f"{requirement.name}{requirement.specifier}", (requirement, not extra))
    requirements_by_text.pop("verl", None)
    return requirements_by_text.values()


def unmet_requirements(request: CheckRequest, names: Iterable[str]) -> list[str]:
    """The conflicts that `pip check` would report for these packages and their dependencies."""
    from packaging.utils import canonicalize_name

    @functools.cache
    def package(name: str) -> tuple[str | None, list[Any]]:
        installed = find_distribution(request, name)
        return (installed.version, parse_requirements(installed.requires or ())) if installed else (None, [])

    problems = []
    pending = [(name, "") for name in names]
    for name, extra in pending:
        for requirement in package(name)[1]:
            # Packages may have malformed markers and versions.
            with contextlib.suppress(ValueError):
                if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                    continue
                needed = canonicalize_name(requirement.name)
                version = package(needed)[0]
                pending += [pair for nested in ("", *requirement.extras) if (pair := (needed, nested)) not in pending]
                if version is None or not requirement.specifier.contains(version, prereleases=True):
                    declared = f"{needed}{requirement.specifier}"
                    problems.append(f"{name} requires {declared} (the workers have {version or 'none'})")
    return list(dict.fromkeys(problems))


def required_verl_findings(code_path: str, module: str) -> list[Finding]:
    """A warning if a recipe is pinned to another verl than the snapshot's.

    The README of verl's repository of recipes defines the file. A recipe that follows verl's main branch is not
    pinned: it names the commit with which it was tried last, which few snapshots have.
    """
    directory = Path(code_path, *module.split(".")[:-1])
    try:
        lines = read_text(directory / REQUIRED_VERL_FILE, MAX_REQUIRED_VERL_BYTES).splitlines()
    except (OSError, UnreadableError):
        return []
    pins = {key.strip(): value.strip() for key, _equals, value in (line.partition("=") for line in lines)}
    manifest = snapshot_manifest(code_path)
    version, commit = str(manifest.get("verl_version")), str(manifest.get("commit") or "")
    release, pinned = pins.get("TAG", "").removeprefix("v"), pins.get("COMMIT", "")
    fits = [pin == actual for pin, actual in ((release, version), (pinned, commit)) if pin and actual]
    if not pins.get("MODE", "").startswith("pinned") or not fits or any(fits):
        return []
    names = one_line(f"verl {release}" if release else f"commit {pinned}", MAX_VERSION_CHARS)
    snapshot = f"verl {version} {commit[:12]}".rstrip()
    text = f"{module} is made for {names} ({REQUIRED_VERL_FILE}), but the snapshot is {snapshot}"
    return [about("code_path", text, "use a snapshot of that verl; no action is needed if it runs with this", WARNING)]


def unneeded_packages(request: CheckRequest, facts: Facts) -> set[str]:
    """The packages that verl requires for every job, but that this job never imports.

    Comments name the places in verl 0.9.0 and 0.9.1 that import them. Every job imports all other packages that verl
    requires; it imports dill by way of datasets.
    """
    loggers = set(as_list(request.setting("trainer.logger")))
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
    package = find_distribution(request, name)
    return package.version if package else None


def find_distribution(request: CheckRequest, name: str) -> metadata.Distribution | None:
    """The package that the job would import; the job's PYTHONPATH goes first."""
    paths = str(request.environment.get("PYTHONPATH", "")).split(":")
    return next(iter(metadata.distributions(name=name, path=[*filter(None, paths), *sys.path])), None)


def is_pin_or_newer(requirement: Any, version: str) -> bool:
    """Whether a version is at least the pinned one; only its first two numbers count.

    verl 0.9.1 pins vllm==0.24.0, and its rollout ran with 0.27.1; its code asks for 0.18 or newer.
    """
    from packaging.version import Version

    return all(
        pin.operator == "==" and Version(version).release[:2] >= Version(pin.version).release[:2]
        for pin in requirement.specifier
    )
