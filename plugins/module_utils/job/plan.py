# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""JobSpec: what a user asks for, checked; and the plan that it becomes on a given cluster.

All of it is pure. Paths are those that nodes see.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..launcher import redact
from ..launcher.archive import JOB
from ..launcher.attempts import METRICS_VARIABLE
from ..launcher.checkpoints import Checkpoint
from ..shared_root import resolve_path
from .capacity import CPUS_PER_GPU, Cluster, size
from .durations import DURATIONS, seconds
from .hydra import hydra_value, merge, override_list
from .overrides import accelerator_overrides, common_overrides, rl_overrides, sft_overrides
from .spec import reward_function
from .verl_releases import SFT, Profile

# verl's main_ppo puts these into the runtime_env of its own ray.init, and Ray refuses two values for one key
# ("Failed to merge the Job's runtime env"): they go into the driver's environment, from where verl forwards them.
FORWARDED_BY_VERL = {
    "VERL_FULL_DETERMINISM",
    "VLLM_BATCH_INVARIANT",
    "VERL_RL_INSIGHT_ENABLE",
    "PYTHONHASHSEED",
    "CUBLAS_WORKSPACE_CONFIG",
    "FLASH_ATTENTION_DETERMINISTIC",
    "NCCL_DETERMINISTIC",
    "NCCL_ALGO",
}


@dataclass(frozen=True)
class Job:
    """A job, ready to be archived and sent."""

    submission_id: str
    archive: str
    code_path: str
    code_id: str
    module: str
    overrides: list[str]
    runtime_env: dict[str, Any]
    driver_env: dict[str, str]
    entrypoint: str
    entrypoint_resources: dict[str, float]
    entrypoint_num_cpus: float
    address: str
    # What launcher and keeper do while it waits, runs and fails.
    policy: dict[str, Any]
    tags: dict[str, Any]

    def plan(self) -> dict[str, Any]:
        """What launcher and keeper read."""
        return {
            "code_path": self.code_path,
            "code_id": self.code_id,
            "module": self.module,
            "overrides": self.overrides,
            "driver_env": self.driver_env,
            "address": self.address,
            "entrypoint": self.entrypoint,
            "entrypoint_resources": self.entrypoint_resources,
            "entrypoint_num_cpus": self.entrypoint_num_cpus,
            **self.policy,
        }

    def submit_command(self) -> str:
        """The same submission by Ray's own command line, to be run on the head."""
        return (
            f"ray job submit --no-wait --address {shlex.quote(self.address)} --submission-id {self.submission_id} "
            f"--entrypoint-num-cpus {self.entrypoint_num_cpus:g} "
            f"--entrypoint-resources {shlex.quote(json.dumps(self.entrypoint_resources))} "
            f"--runtime-env {shlex.quote(f'{self.archive}/config/runtime_env.json')} -- {self.entrypoint} 1\n"
        )


# Ray's own switches; see docs/debugging.md.
DEBUGGERS = {"post_mortem": {"RAY_DEBUG_POST_MORTEM": "1"}, "legacy": {"RAY_DEBUG": "legacy"}}
HOOK = "argus_launcher.redact.enter_worker"


def environment(spec: Mapping[str, Any], code_path: str, archive: str) -> dict[str, str]:
    """The environment of driver and workers: what was asked for, and what must hold."""
    root = spec["shared_root"]
    asked = {str(name): str(value) for name, value in spec["env_vars"].items()}
    # The hook that every worker of a job with secrets starts with lies in the archive.
    hook = f"{archive}/config/launcher" if spec["secrets"] else ""
    further = ":".join(filter(None, (asked.get("PYTHONPATH", ""), hook)))
    return {
        "HF_HUB_OFFLINE": "1",  # staged once, never fetched by every node
        "PYTHONUNBUFFERED": "1",
        "HYDRA_FULL_ERROR": "1",
        **asked,
        # The snapshot before everything else; jobs must not write their byte code into it.
        "PYTHONPATH": f"{code_path}:{further}" if further else code_path,
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HOME": f"{root}/hf",
        # verl's file logger empties its file at every start: one for each attempt.
        METRICS_VARIABLE: f"{archive}/logs/metrics-1.jsonl",
        # By these every process of the job can be found, and finds its secrets.
        JOB: archive.rpartition("/")[2],
        redact.ARCHIVE: archive,
        **DEBUGGERS.get(spec["debugger"], {}),
        # sft_trainer_ray calls ray.init() without an address; Ray then takes this one.
        "RAY_ADDRESS": "auto",
        # Ray's 3 s are too short for a trainer to end and for the evidence.
        "RAY_JOB_STOP_WAIT_TIME_S": "30",
    }


def policy(spec: Mapping[str, Any], cluster: Cluster) -> dict[str, Any]:
    """How the job is treated; durations in seconds."""
    nnodes, gpus = size(spec, cluster)
    return {
        "workload": spec["workload"],
        "nnodes": nnodes,
        "gpus_per_node": gpus,
        "cpus_per_node": CPUS_PER_GPU[spec["workload"]] * gpus,
        "secrets": list(spec["secrets"]),
        "retries": spec["retries"],
        "on_stall": spec["on_stall"],
        **{key: seconds(spec[key]) for key in DURATIONS},
    }


def plan(
    spec: Mapping[str, Any],
    cluster: Cluster,
    code_id: str,
    submission_id: str,
    profile: Profile,
    checkpoint: Checkpoint | None = None,
) -> Job:
    """The job that a checked JobSpec becomes on a cluster that it fits.

    code_id: the snapshot's, from its marker.
    profile: of the snapshot's verl; version_findings and accelerator_findings have nothing to say of it.
    checkpoint: the one to go on from, of the job that resume_from names.
    """
    root, workload = spec["shared_root"], spec["workload"]
    archive = f"{root}/jobs/{submission_id}"
    code_path = resolve_path(spec["code_path"], root, "common/code/verl")
    model = resolve_path(spec["model"], root, "common/models")
    dataset = resolve_path(spec["dataset"], root, "datasets")
    if workload == SFT:
        own = sft_overrides(model, dataset, profile)
    else:
        own = rl_overrides(workload, model, dataset, reward_function(spec), profile)
    defaults = [
        *common_overrides(spec, cluster, submission_id, archive, profile),
        *own,
        *accelerator_overrides(workload, cluster.accelerator, size(spec, cluster)[1]),
    ]
    if checkpoint:
        defaults += ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={hydra_value(str(checkpoint.path))}"]
    env = environment(spec, code_path, archive)
    return Job(
        submission_id=submission_id,
        archive=archive,
        code_path=code_path,
        code_id=code_id,
        module=profile.module(workload) or "",
        overrides=merge(defaults, override_list(spec["trainer_overrides"])),
        runtime_env={
            "env_vars": {name: value for name, value in env.items() if name not in FORWARDED_BY_VERL},
            **({"worker_process_setup_hook": HOOK} if spec["secrets"] else {}),
        },
        driver_env={
            **profile.driver_environment(workload),
            **{name: value for name, value in env.items() if name in FORWARDED_BY_VERL},
        },
        # The attempt's number comes after it.
        entrypoint=shlex.join(["python3", f"{archive}/config/launcher", "run", archive]),
        entrypoint_resources=dict(spec["ray"]["resources"]["entrypoint_resources"]),
        entrypoint_num_cpus=spec["ray"]["resources"]["entrypoint_num_cpus"],
        address=spec["ray"]["address"],
        policy={
            **policy(spec, cluster),
            "transfer_queue": workload != SFT and profile.transfer_queue,
            "resumed_from": spec["resume_from"],
            "resumed_from_step": checkpoint.step if checkpoint else None,
        },
        tags=dict(spec["tags"]),
    )
