# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JobSpec: a training job as its author describes it. Paths are those on the nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..launcher.hydra import override_list
from ..shared_root import DATASETS, MODELS, SNAPSHOTS, USER_CODE, resolve_path
from .durations import seconds
from .options import RawSpec


def plain_root(path: str) -> str:
    """A shared root without repeated and trailing slashes, which would appear in every path that is built from it."""
    return re.sub("/+", "/", path).removesuffix("/") or "/"


@dataclass(frozen=True)
class RewardFunction:
    """A reward function: its file, and its name in that file."""

    file: str
    name: str


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
    shared_root: str
    code_path: str
    model: str
    dataset: str
    submission_id: str | None
    # ``FILE`` or ``FILE:FUNCTION``.
    reward_fn_path: str | None
    address: str
    entrypoint_resources: Mapping[str, float]
    entrypoint_num_cpus: float
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
    accept: tuple[str, ...]

    @classmethod
    def of(cls, values: RawSpec) -> JobSpec:
        """From the values that `options.typed` returns.

        Raises ValueError if a duration or the overrides are malformed; `spec_checks.syntax_findings` reports those.
        """
        ray, resources = values["ray"], values["resources"]
        names = (
            *("workload", "code_path", "model", "dataset", "submission_id", "reward_fn_path", "env_vars", "retries"),
            *("on_stall", "resume_from", "debugger", "tags"),
        )
        return cls(
            **{name: values[name] for name in names},
            shared_root=plain_root(values["shared_root"]),
            address=ray["address"],
            entrypoint_resources=ray["resources"]["entrypoint_resources"],
            entrypoint_num_cpus=ray["resources"]["entrypoint_num_cpus"],
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
        return RewardFunction(resolve_path(path, self.shared_root, USER_CODE), function or "compute_score")
