# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of a JobSpec's values. All of them are pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from ..common.findings import Finding, about
from ..common.shared_root import DATASETS, MODELS, SNAPSHOTS, USER_CODE, bring, outside, under_root
from ..launcher.hydra import override_key, override_text
from ..launcher.plan import TORCHRUN
from .batches import batch_findings
from .capacity import Cluster
from .environment import environment_findings, form_of_secret, secret_findings
from .inventory import parse_address
from .owned import OWNED_OVERRIDES, about_override, override_findings
from .runtime_env import runtime_env_findings
from .spec import JobSpec, is_module_entry
from .submission_id import SUBMISSION_ID
from .verl_releases import SFT, Profile

STAGED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
# Paths become Hydra overrides, in which ${…} is an interpolation.
NOT_IN_PATHS = re.compile(r"[$\n\r\t]")
NOT_PLAIN, RENAME = "Hydra or a shell would replace", "rename it without $ and line breaks"
# ray/_common/ray_option_utils.py:_validate_resource_quantity
SMALLEST_AMOUNT = 0.0001
MOST_TRIAL_ROWS = 64
RESUME_KEYS = ("trainer.resume_mode", "trainer.resume_from_path")


def spec_findings(spec: JobSpec) -> list[Finding]:
    """All problems of the values of a JobSpec that show without a cluster."""
    checks = (
        *(_id, _paths, _reward, environment_findings, runtime_env_findings, secret_findings, _policy, _resources),
    )
    found = [finding for check in checks for finding in check(spec)]
    return found + list(override_findings(spec))


def _id(spec: JobSpec) -> Iterator[Finding]:
    if spec.submission_id is not None and not SUBMISSION_ID.fullmatch(spec.submission_id):
        todo = "use at most 63 lower-case letters, digits, '.', '_' and '-', and begin with a letter or a digit"
        yield about("submission_id", f"{spec.submission_id!r} is malformed", f"{todo}; or leave it out")


def _paths(spec: JobSpec) -> Iterator[Finding]:
    root = spec.shared_root
    if not root.startswith("/"):
        yield about("shared_root", f"{root!r} is not absolute", "give the path that nodes see, such as /private")
        return
    if ".." in PurePosixPath(root).parts:
        yield about("shared_root", f"{root!r} contains ..", "give the path that nodes see, such as /private")
        return
    named = (
        ("code_path", spec.code_path, SNAPSHOTS),
        ("model", spec.model, MODELS),
        ("dataset", spec.dataset, DATASETS),
    )
    for key, value, home in named:
        if not value.startswith("/"):
            if not STAGED_NAME.fullmatch(value):
                todo = f"give the name of a directory in {root}/{home}, or an absolute path under {root}"
                yield about(key, f"{value!r} is neither a name nor an absolute path", todo)
        elif not under_root(value, root):
            yield about(key, outside(value, root), bring(home))
        elif NOT_IN_PATHS.search(value):
            yield about(key, f"{value!r} has characters that {NOT_PLAIN}", RENAME)


def _reward(spec: JobSpec) -> Iterator[Finding]:
    given, key = spec.reward_fn_path, "reward_fn_path"
    if given is None:
        return
    path, _dummy, function = given.partition(":")
    if path.startswith("/") and spec.shared_root.startswith("/") and not under_root(path, spec.shared_root):
        yield about(key, outside(path, spec.shared_root), bring(USER_CODE))
    if is_module_entry(given):
        pass
    elif not path.endswith(".py") or ".." in PurePosixPath(path).parts:
        todo = "give FILE.py or FILE.py:FUNCTION, relative to user/code or absolute under the shared root"
        todo += "; or PACKAGE.MODULE:FUNCTION, in user/code"
        yield about(key, f"{given!r} is neither a Python file nor a function of a module", todo)
    elif NOT_IN_PATHS.search(path):
        yield about(key, f"{path!r} has characters that {NOT_PLAIN}", RENAME)
    if given.endswith(":") or (function and not function.isidentifier()):
        yield about(key, f"{function!r} is not a function name", "give FILE.py:compute_score")
    if spec.workload == SFT:
        yield about(key, "sft has no rewards", "remove it, or choose workload: grpo or ppo")


def _policy(spec: JobSpec) -> Iterator[Finding]:
    """The keys that control how the job is started, waits, retries, resumes and is labelled."""
    if spec.launcher == TORCHRUN and spec.workload != SFT:
        yield about("launcher", f"torchrun starts sft only: verl needs Ray for {spec.workload}", "remove it")
    if not 0 <= spec.retries <= 100:
        yield about("retries", f"is {spec.retries}", "give the number of further attempts, 0 to 100")
    if not 0 <= spec.check_reward <= MOST_TRIAL_ROWS:
        todo = f"give the number of rows with which the gate calls the reward function, 0 to {MOST_TRIAL_ROWS}"
        yield about("check_reward", f"is {spec.check_reward}", todo)
    elif spec.check_reward and spec.reward_fn_path is None:
        yield about("check_reward", "there is no reward_fn_path", "set reward_fn_path, or remove it")
    if spec.resume_from is not None:
        if not SUBMISSION_ID.fullmatch(spec.resume_from):
            todo = "give the id of the job whose last checkpoint this job resumes from"
            yield about("resume_from", f"{spec.resume_from!r} is not a submission id", todo)
        for key in map(override_key, spec.trainer_overrides):
            if key in RESUME_KEYS:
                yield about_override(key, "contradicts resume_from", "keep only one of them")
    for name, value in spec.tags.items():
        form = form_of_secret(f"{name} {value}")
        if isinstance(value, (dict, list)):
            yield about(f"tags.{name}", f"is {value!r}", "give a string or a number")
        elif form:
            yield about(f"tags.{name}", f"contains {form}, readable in the archive and in listings", "remove it")


def _resources(spec: JobSpec) -> Iterator[Finding]:
    for name, value in (("nnodes", spec.nnodes), ("gpus_per_node", spec.gpus_per_node)):
        if value is not None and value < 1:
            yield about(f"resources.{name}", f"is {value}", "give 1 or more, or leave it out to use all")
    if parse_address(spec.address) is None:
        todo = "give scheme, host and port only, such as http://127.0.0.1:8265"
        yield about("ray.address", f"{spec.address!r} is not an address", todo)
    key = "ray.resources.entrypoint_resources"
    for name in ("CPU", "GPU"):
        if name in spec.entrypoint_resources:
            # Ray accepts the job and fails it later.
            yield about(key, f"must not contain {name}", "use ray.resources.entrypoint_num_cpus for CPUs")
    if not is_amount(spec.entrypoint_num_cpus):
        what = f"is {spec.entrypoint_num_cpus:g}"
        yield about("ray.resources.entrypoint_num_cpus", what, f"give 0, or {SMALLEST_AMOUNT} or more")
    wrong = {name: amount for name, amount in spec.entrypoint_resources.items() if not is_amount(amount)}
    for name, amount in wrong.items():
        yield about(f"{key}.{name}", f"is {amount!r}", f"give a number: 0, or {SMALLEST_AMOUNT} or more")
    if not wrong and not any(spec.entrypoint_resources.values()):
        todo = "keep {worker_node: 1}, or name a resource that only workers have"
        yield about(key, "contains nothing that keeps the driver off the head", todo)


def is_amount(amount: object) -> bool:
    """Whether Ray accepts this as the amount of a resource that a job asks for."""
    if isinstance(amount, bool) or not isinstance(amount, (int, float)):
        return False
    return amount == 0 or SMALLEST_AMOUNT <= amount < math.inf


def version_findings(spec: JobSpec, profile: Profile) -> list[Finding]:
    """What the snapshot's release of verl cannot do, does not read, or names differently."""
    verl = f"verl {profile.version}"
    if profile.module(spec.workload, spec.launcher) is None:
        return [no_sft(spec.launcher, profile)]
    found = list(batch_findings(spec, profile))
    reward = spec.inputs.reward
    if reward and reward.module and not profile.reward_modules:
        what = f"{verl} loads reward functions from files only, not {reward.module}"
        found.append(about("reward_fn_path", what, "give FILE.py:FUNCTION, or use a snapshot of verl 0.7 or newer"))
    for override in spec.trainer_overrides:
        key, value = override_key(override), override_text(override)
        todo = None if key in OWNED_OVERRIDES else profile.unread_hint(spec.workload, key)
        if todo:
            found.append(about_override(key, f"is not read by {verl}", todo))
        elif key == "trainer.logger":
            unknown = [name for name in re.findall(r"\w+", value) if name not in profile.loggers]
            todo = f"use some of {', '.join(profile.loggers)}"
            found += [about_override(key, f"{verl} has no logger {name}", todo) for name in unknown]
        elif spec.workload == SFT and key == "trainer.device" and spec.launcher == TORCHRUN:
            found.append(about_override(key, "is decided by the GPUs of the workers", "remove it"))
        elif spec.workload == SFT and key == "trainer.device" and value != profile.sft_device:
            what = f"is {value or 'empty'}, but the driver of {verl} works with {profile.sft_device} only"
            found.append(about_override(key, what, "remove it"))
    return found


def no_sft(launcher: str, profile: Profile) -> Finding:
    verl = f"verl {profile.version}"
    if launcher == TORCHRUN:
        what = f"{verl} has no trainer of sft for torchrun (verl/trainer/sft_trainer.py)"
        return about("launcher", what, "use a snapshot of verl 0.6.1 or newer")
    what, todo = f"{verl} has no sft on Ray (verl/trainer/sft_trainer_ray.py)", "use a snapshot of verl 0.7 or newer"
    if profile.module(SFT, TORCHRUN):
        todo += ", or set launcher: torchrun"
    return about("workload", what, todo)


def accelerator_findings(workload: str, profile: Profile, cluster: Cluster) -> list[Finding]:
    """Whether the snapshot's release of verl can train on the cluster's accelerator."""
    if cluster.accelerator == "cpu" and not profile.cpu_backend(workload):
        what = f"verl {profile.version} cannot train without a GPU: the CPU backend is for verl 0.9, and 0.8 for sft"
        return [about("code_path", what, "use a snapshot of verl 0.9, or a cluster with GPUs")]
    return []
