# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JobSpec: a training job as its author describes it. Paths are those on the nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any

from ..common.shared_root import DATASETS, MODELS, SNAPSHOTS, USER_CODE, resolve_path
from ..launcher.hydra import override_list
from .durations import seconds
from .options import RawSpec


def plain_root(path: str) -> str:
    """A shared root without repeated and trailing slashes, which would appear in every path that is built from it."""
    return re.sub("/+", "/", path).removesuffix("/") or "/"


def is_module_entry(reward_fn_path: str) -> bool:
    """Whether it has the form ``package.module:function``; ``file.py:function`` is a file."""
    module, colon, function = reward_fn_path.partition(":")
    return bool(colon) and function.isidentifier() and not module.endswith(".py") and is_dotted_name(module)


def is_dotted_name(text: str) -> bool:
    return all(part.isidentifier() and not iskeyword(part) for part in text.split("."))


@dataclass(frozen=True)
class RewardFunction:
    """A reward function: its file, and its name in that file.

    module: the dotted name by which it is imported from user/code. Empty: the file is loaded by its path.
    """

    file: str
    name: str
    module: str = ""

    @property
    def path(self) -> str:
        """What verl's setting has."""
        # utils/import_utils.py:load_module
        return f"pkg://{self.module}" if self.module else self.file


@dataclass(frozen=True)
class Inputs:
    """The inputs of a job, as absolute paths."""

    code_path: str
    model: str
    dataset: str
    reward: RewardFunction | None


@dataclass(frozen=True)
class JobSpec:
    """A JobSpec with its defaults. Its keys are documented in plugins/modules/ray_job.py.

    Durations are in seconds; None means no limit.
    """

    workload: str
    # What starts the processes of the trainer: RAY or TORCHRUN.
    launcher: str
    shared_root: str
    code_path: str
    model: str
    dataset: str
    submission_id: str | None
    # ``FILE``, ``FILE:FUNCTION`` or ``PACKAGE.MODULE:FUNCTION``.
    reward_fn_path: str | None
    address: str
    entrypoint_resources: Mapping[str, float]
    entrypoint_num_cpus: float
    # Of Ray's runtime environment, what the collection does not decide; env_vars there are defaults.
    runtime_env: Mapping[str, Any]
    nnodes: int | None
    gpus_per_node: int | None
    # Each is ``key=value`` or ``~key``.
    trainer_overrides: tuple[str, ...]
    env_vars: Mapping[str, object]
    secrets: tuple[str, ...]
    retries: int
    deadline: float | None
    wait_for_resources: float | None
    start_timeout: float | None
    stall_timeout: float | None
    on_stall: str
    resume_from: str | None
    debugger: str | None
    tags: Mapping[str, object]
    check_reward: int
    accept: tuple[str, ...]

    @classmethod
    def of(cls, values: RawSpec) -> JobSpec:
        """From the values that `options.typed` returns.

        Raises ValueError if a duration or the overrides are malformed; `spec_checks.syntax_findings` reports those.
        """
        ray, resources = values["ray"], values["resources"]
        names = (
            *("workload", "launcher", "code_path", "model", "dataset", "reward_fn_path", "env_vars"),
            *("retries", "on_stall", "resume_from", "debugger", "tags", "check_reward"),
        )
        return cls(
            **{name: values[name] for name in names},
            submission_id=values["submission_id"] or None,
            shared_root=plain_root(values["shared_root"]),
            address=ray["address"],
            entrypoint_resources=ray["resources"]["entrypoint_resources"],
            entrypoint_num_cpus=ray["resources"]["entrypoint_num_cpus"],
            runtime_env=ray["runtime_env"],
            nnodes=resources["nnodes"],
            gpus_per_node=resources["gpus_per_node"],
            trainer_overrides=tuple(override_list(values["trainer_overrides"])),
            secrets=tuple(values["secrets"]),
            accept=tuple(values["accept"]),
            deadline=seconds(values["deadline"]),
            wait_for_resources=seconds(values["wait_for_resources"]),
            start_timeout=seconds(values["start_timeout"]),
            stall_timeout=seconds(values["stall_timeout"]),
        )

    @property
    def inputs(self) -> Inputs:
        return Inputs(
            code_path=resolve_path(self.code_path, self.shared_root, SNAPSHOTS),
            model=resolve_path(self.model, self.shared_root, MODELS),
            dataset=resolve_path(self.dataset, self.shared_root, DATASETS),
            reward=self._reward(),
        )

    def _reward(self) -> RewardFunction | None:
        if self.reward_fn_path is None:
            return None
        path, _dummy, function = self.reward_fn_path.partition(":")
        if is_module_entry(self.reward_fn_path):
            file = resolve_path(f"{path.replace('.', '/')}.py", self.shared_root, USER_CODE)
            return RewardFunction(file, function, path)
        return RewardFunction(resolve_path(path, self.shared_root, USER_CODE), function or "compute_score")
