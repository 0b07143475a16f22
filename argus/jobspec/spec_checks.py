# SPDX-License-Identifier: Apache-2.0
"""Checks the values of a JobSpec: alone, together, and against the inventory and the snapshot's release of verl.

All of these checks are pure: they read no files and ask no cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from ..archive.archive import SUBMISSION_ID
from ..archive.plan import COMMAND, TORCHRUN
from ..common import shared_root as layout
from ..common.findings import Finding, about
from ..io.hydra import override_key, override_text
from ..ray.api import is_loopback, parse_address
from .capacity import Cluster
from .environment import form_of_secret, runtime_env_findings, secret_findings, variable_findings
from .overrides import batch_findings
from .owned import OWNED_OVERRIDES, about_override, override_findings
from .spec import JobSpec, is_module_entry, plain_root
from .verl_releases import SFT, Profile

STAGED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
# Paths become Hydra overrides, in which ${…} is an interpolation.
FORBIDDEN_IN_PATHS = re.compile(r"[$\n\r\t]")
REPLACED, RENAME = "Hydra or a shell would replace", "rename it without $ and line breaks"
DEFAULT_ADDRESS = str(JobSpec.model_fields["address"].default)
RESUME_KEYS = ("trainer.resume_mode", "trainer.resume_from_path")


def spec_findings(spec: JobSpec) -> list[Finding]:
    """All findings about the values of a JobSpec that show without the inventory and without a cluster."""
    checks = (_path_findings, _reward_findings, runtime_env_findings, secret_findings, _key_findings, override_findings)
    findings = [finding for check in checks for finding in check(spec)]
    findings += variable_findings("env_from", spec.env_from, spec.shared_root)
    return [*findings, *variable_findings("env_vars", spec.env_vars, spec.shared_root)]


def _path_findings(spec: JobSpec) -> Iterator[Finding]:
    root = spec.shared_root
    if not root.startswith("/"):
        yield about("shared_root", f"{root!r} is not absolute", "give the path that nodes see, such as /private")
        return
    if ".." in PurePosixPath(root).parts:
        yield about("shared_root", f"{root!r} contains ..", "give the path that nodes see, such as /private")
        return
    inputs = (
        ("code_path", spec.code_path, layout.CODE_DIR),
        ("model", spec.model, layout.MODELS_DIR),
        ("dataset", spec.dataset, layout.DATASETS_DIR),
    )
    for key, value, home in inputs:
        if not value and spec.workload == COMMAND:
            continue
        if not value.startswith("/"):
            if not STAGED_NAME.fullmatch(value):
                remedy = f"give the name of a directory in {root}/{home}, or an absolute path under {root}"
                yield about(key, f"{value!r} is neither a name nor an absolute path", remedy)
        elif not layout.is_under_root(value, root):
            yield about(key, layout.outside_root_text(value, root), layout.copy_remedy(home))
        elif FORBIDDEN_IN_PATHS.search(value):
            yield about(key, f"{value!r} has characters that {REPLACED}", RENAME)


def _reward_findings(spec: JobSpec) -> Iterator[Finding]:
    entry, key = spec.reward_fn_path, "reward_fn_path"
    if entry is None:
        return
    path, _dummy, function = entry.partition(":")
    if path.startswith("/") and spec.shared_root.startswith("/") and not layout.is_under_root(path, spec.shared_root):
        yield about(key, layout.outside_root_text(path, spec.shared_root), layout.copy_remedy(layout.USER_CODE_DIR))
    if is_module_entry(entry):
        pass
    elif not path.endswith(".py") or ".." in PurePosixPath(path).parts:
        remedy = "give FILE.py or FILE.py:FUNCTION, relative to user/code or absolute under the shared root"
        remedy += "; or PACKAGE.MODULE:FUNCTION, in user/code"
        yield about(key, f"{entry!r} is neither a Python file nor a function of a module", remedy)
    elif FORBIDDEN_IN_PATHS.search(path):
        yield about(key, f"{path!r} has characters that {REPLACED}", RENAME)
    if entry.endswith(":") or (function and not function.isidentifier()):
        yield about(key, f"{function!r} is not a function name", "give FILE.py:compute_score")
    if spec.workload == SFT:
        yield about(key, "sft has no rewards", "remove it, or choose workload: grpo or ppo")


def _key_findings(spec: JobSpec) -> Iterator[Finding]:
    """Findings about keys that do not fit together, and about secrets in commands and tags."""
    if (spec.workload == COMMAND) != bool(spec.command):
        remedy = "name the program first, as in [python3, FILE.py]" if not spec.command else "set workload: command"
        yield about("command", "is not set" if not spec.command else f"is not for workload {spec.workload}", remedy)
    if spec.gpus and (spec.workload != COMMAND or spec.nnodes or spec.gpus_per_node):
        remedy = "set resources.nnodes and resources.gpus_per_node" + " only" * (spec.workload == COMMAND)
        yield about("resources.gpus", "is for a command that uses the GPUs of one worker", remedy)
    if spec.ready_port and spec.workload != COMMAND:
        yield about("ready", "is for a command", "remove it, or set workload: command")
    for name, server in spec.env_from.items():
        if name in spec.env_vars or not SUBMISSION_ID.fullmatch(server):
            remedy = "give the id of a job with ready, and the name to no other variable"
            yield about(f"env_from.{name}", f"is {server!r}", remedy)
    for key in ("command", "before", "after"):
        if form := form_of_secret(" ".join(getattr(spec, key))):
            yield about(key, f"contains {form}, readable in the archive and by `ps`", "use secrets")
    if spec.pools and spec.workload == SFT:
        yield about("resources.pools", "sft has no pools beside that of its trainer", "remove it")
    if spec.module and spec.launcher == TORCHRUN:
        yield about("module", "runs with Ray", "remove launcher")
    if spec.config_name and not spec.module:
        yield about("config_name", "is for a module", "set module, or --config-name in trainer_overrides")
    if spec.launcher == TORCHRUN and spec.workload != SFT:
        yield about("launcher", f"torchrun starts sft only: verl needs Ray for {spec.workload}", "remove it")
    if spec.check_reward and spec.reward_fn_path is None:
        yield about("check_reward", "there is no reward_fn_path", "set reward_fn_path, or remove it")
    if spec.resume_from is not None:
        for key in map(override_key, spec.trainer_overrides):
            if key in RESUME_KEYS:
                yield about_override(key, "contradicts resume_from", "keep only one of them")
    for name, value in spec.tags.items():
        form = form_of_secret(f"{name} {value}")
        if isinstance(value, (dict, list)):
            yield about(f"tags.{name}", f"is {value!r}", "give a string or a number")
        elif form:
            yield about(f"tags.{name}", f"contains {form}, readable in the archive and in listings", "remove it")


def inventory_findings(spec: JobSpec, defaults: Mapping[str, Any]) -> Iterator[Finding]:
    """Findings about values that only the inventory may change.

    defaults: the values of the inventory, by the keys of a JobSpec.
    """
    root = plain_root(str(defaults.get("shared_root") or layout.DEFAULT_SHARED_ROOT))
    if spec.shared_root != root:
        problem = f"is {spec.shared_root}, but the shared root of this inventory is {root}"
        yield about("shared_root", problem, "remove it; to use another shared root, use an inventory that has it")
    ray = defaults.get("ray")
    allowed = str((ray.get("address") if isinstance(ray, Mapping) else None) or DEFAULT_ADDRESS)
    address = parse_address(spec.address)
    if address and not is_loopback(address[1]) and address != parse_address(allowed):
        problem = f"{spec.address!r} is neither on the head itself nor the address of this inventory, {allowed}"
        yield about("ray.address", f"{problem}: the cluster's token would be sent there", "remove it")


def version_findings(spec: JobSpec, profile: Profile) -> list[Finding]:
    """Findings about overrides that the snapshot's release of verl does not support, or does not read."""
    verl = f"verl {profile.version}"
    findings = list(batch_findings(spec, profile))
    for override in spec.trainer_overrides:
        key, value = override_key(override), override_text(override)
        remedy = None if key in OWNED_OVERRIDES else profile.unread_hint(spec.workload, key)
        if remedy:
            findings.append(about_override(key, f"is not read by {verl}", remedy))
        elif key == "trainer.logger":
            unknown = [name for name in re.findall(r"\w+", value) if name not in profile.loggers]
            remedy = f"use some of {', '.join(profile.loggers)}"
            findings += [about_override(key, f"{verl} has no logger {name}", remedy) for name in unknown]
        elif spec.workload == SFT and key == "trainer.device" and spec.launcher == TORCHRUN:
            findings.append(about_override(key, "is decided by the GPUs of the workers", "remove it"))
        elif spec.workload == SFT and key == "trainer.device" and value != profile.sft_device:
            problem = f"is {value or 'empty'}, but the driver of {verl} works with {profile.sft_device} only"
            findings.append(about_override(key, problem, "remove it"))
    return findings


def accelerator_findings(workload: str, profile: Profile, cluster: Cluster) -> list[Finding]:
    """A finding if the snapshot's release of verl cannot train on the cluster's accelerator."""
    if cluster.accelerator == "cpu" and not profile.cpu_backend(workload):
        problem = f"verl {profile.version} cannot train without a GPU: its CPU backend is for sft only"
        return [about("code_path", problem, "use a snapshot of verl 0.9, or a cluster with GPUs")]
    return []
