# SPDX-License-Identifier: Apache-2.0
"""Turns a JobSpec into a job on a given cluster: the plan for the archive, and the submission to Ray."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from ..archive.archive import JOB_CONFIG_VARIABLE, JOB_VARIABLE, OUTPUT
from ..archive.checkpoints import Checkpoint
from ..archive.plan import TORCHRUN, Plan
from ..archive.program import Program, entrypoint
from ..common.shared_root import USER_CODE_DIR, archive_path
from ..hooks import redact
from ..io.hydra import merge_overrides
from ..launcher import torchrun
from ..queue.attempts import METRICS_VARIABLE
from .capacity import Cluster, pools_of, size_of
from .environment import repeatable_variables, requested_variables
from .overrides import default_overrides
from .spec import JobSpec
from .verl_releases import SFT, Profile, trainer_module

# verl's main_ppo puts these into the runtime_env of its own ray.init, and Ray refuses two values for one key
# ("Failed to merge the Job's runtime env"). They go into the driver's environment, from where verl forwards them.
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
# Ray's own switches; see docs/debugging.md.
DEBUGGERS = {"post_mortem": {"RAY_DEBUG_POST_MORTEM": "1"}, "legacy": {"RAY_DEBUG": "legacy"}}
# W&B writes into a temporary directory if this one does not exist.
WANDB_DIRECTORY = "logs/wandb"
# Variables left out of the printed trainer command: they would mark a process as the job's, and empty its metrics.
NOT_IN_COMMAND = (JOB_VARIABLE, redact.ARCHIVE, METRICS_VARIABLE, "RAY_JOB_STOP_WAIT_TIME_S")
# Stands for a server whose address is not known yet.
NO_ADDRESS = "http://127.0.0.1:9"
# Ray runs this function first in every worker process of a job with secrets or a TransferQueue.
HOOK = "argus.hooks.isolation.enter_worker"


@dataclass(frozen=True)
class Job:
    """A job that is ready to be archived and submitted."""

    submission_id: str
    archive: str
    plan: Plan
    runtime_env: Mapping[str, Any]
    tags: Mapping[str, object]

    def submit_command(self) -> str:
        """The equivalent `ray job submit` command, for the head."""
        plan = self.plan
        gpus = f"--entrypoint-num-gpus {plan.entrypoint_num_gpus:g} " if plan.entrypoint_num_gpus else ""
        return (
            f"ray job submit --no-wait --address {shlex.quote(plan.address)} --submission-id {self.submission_id} "
            f"--entrypoint-num-cpus {plan.entrypoint_num_cpus:g} {gpus}"
            f"--entrypoint-resources {shlex.quote(json.dumps(plan.entrypoint_resources))} "
            f"--runtime-env {shlex.quote(f'{self.archive}/config/runtime_env.json')} -- {plan.entrypoint} 1\n"
        )

    def train_command(self) -> str:
        """The trainer's own command, for a worker: without the launcher, and without the values of secrets."""
        env_vars = {name: value for name, value in self.runtime_env["env_vars"].items() if name not in NOT_IN_COMMAND}
        # The hook reads secrets, which are gone with the job.
        further = {name: value for name, value in self.runtime_env.items() if name != "worker_process_setup_hook"}
        # As Ray passes it to the driver of a job: without it, Ray's workers would have none of these variables.
        config = json.dumps({"runtime_env": {**further, "env_vars": env_vars}})
        variables = {**env_vars, **self.plan.driver_env, JOB_CONFIG_VARIABLE: config}
        assignments = [f"{name}={value}" for name, value in variables.items()]
        command = self.plan.command or ("python3", "-m", self.plan.module, *self.plan.overrides)
        if self.plan.launcher == TORCHRUN:
            # For the first node; the others have another rank.
            ranks = torchrun.arguments(self.plan, "0", "MASTER_ADDRESS", "29500")
            command = ("python3", "-m", torchrun.TORCHRUN_MODULE, *ranks, *command[1:])
        directory = [f"--chdir={self.plan.directory}"] if self.plan.directory else []
        return f"{shlex.join(['env', *directory, *assignments, *command])}\n"

    def with_python_path(self, further: str) -> Job:
        """The same job, which searches further directories for modules after all others."""
        variables = dict(self.runtime_env["env_vars"])
        # An empty entry would stand for the current directory.
        variables["PYTHONPATH"] = ":".join(filter(None, (variables["PYTHONPATH"], *further.split(":"))))
        return replace(self, runtime_env={**self.runtime_env, "env_vars": variables})


def may_use_queue(spec: JobSpec, profile: Profile | None) -> bool:
    """Whether the trainer keeps its samples in TransferQueue, unless its composed configuration tells otherwise."""
    return profile is not None and spec.workload != SFT and profile.transfer_queue


def environment(spec: JobSpec, archive: str, hook: bool) -> dict[str, str]:
    """The environment of the driver and its workers: the variables of the JobSpec, and those that every job needs.

    hook: whether workers run HOOK.
    """
    chosen, reward = requested_variables(spec), spec.inputs.reward
    launcher = Program.of_this_process().python_path if hook else ""
    is_imported = spec.module or spec.command or (reward and reward.module)
    user_code = f"{spec.shared_root}/{USER_CODE_DIR}" if is_imported else ""
    # with_python_path appends the path of the nodes.
    paths = [path for path in chosen.get("PYTHONPATH", "").split(":") if path not in ("$PYTHONPATH", "${PYTHONPATH}")]
    python_path = dict.fromkeys(filter(None, (spec.inputs.code_path, user_code, *paths, launcher)))
    return {
        "HF_HUB_OFFLINE": "1",  # models are staged once, not downloaded by every node
        "PYTHONUNBUFFERED": "1",
        "HYDRA_FULL_ERROR": "1",
        # The defaults would be inside a container.
        "TENSORBOARD_DIR": f"{archive}/logs/tensorboard",
        "MLFLOW_TRACKING_URI": f"sqlite:///{archive}/logs/mlflow.db",
        "TRACKIO_DIR": f"{archive}/logs/trackio",
        "WANDB_DIR": f"{archive}/{WANDB_DIRECTORY}",
        # With it, the trainer of torchrun says how many steps it will do.
        **({"VERL_SFT_LOGGING_LEVEL": "INFO"} if spec.launcher == TORCHRUN else {}),
        # Each attempt replaces these with the addresses of its servers.
        **dict.fromkeys(spec.env_from, NO_ADDRESS),
        **chosen,
        # The snapshot must come first, and jobs must not write byte code into it.
        "PYTHONPATH": ":".join(python_path),
        "PYTHONDONTWRITEBYTECODE": "1",
        # verl's file logger truncates its file at every start, so each attempt gets its own.
        METRICS_VARIABLE: f"{archive}/logs/metrics-1.jsonl",
        # These identify every process of the job, and locate its secrets.
        JOB_VARIABLE: archive.rpartition("/")[2],
        redact.ARCHIVE: archive,
        **DEBUGGERS.get(spec.debugger or "", {}),
        **repeatable_variables(spec.shared_root),
        # Ray's default of 3 s is too short to end a trainer and collect its evidence.
        "RAY_JOB_STOP_WAIT_TIME_S": "30",
    }


def plan_job(
    spec: JobSpec,
    cluster: Cluster,
    code_id: str,
    submission_id: str,
    profile: Profile | None,
    checkpoint: Checkpoint | None = None,
    validates: bool = True,
) -> Job:
    """The job for a checked JobSpec, on a cluster that has the capacity for it.

    code_id: the id in the snapshot's marker.
    profile: the snapshot's release of verl; version_findings and accelerator_findings have returned nothing for it.
    None for a command.
    checkpoint: the checkpoint to resume from, of the job that resume_from names.
    validates: whether the dataset has data for validation.
    """
    size, archive = size_of(spec, cluster), archive_path(spec.shared_root, submission_id)
    overrides, driver_env = list[str](), dict[str, str]()
    if profile:
        overrides = default_overrides(spec, cluster, submission_id, profile, checkpoint, validates)
        driver_env = profile.driver_environment(spec.workload, spec.launcher)
    hook = bool(spec.secrets) or may_use_queue(spec, profile)
    variables = environment(spec, archive, hook)
    names = set() if spec.launcher == TORCHRUN else FORWARDED_BY_VERL & variables.keys()
    forwarded = {name: variables.pop(name) for name in names}
    # First the fields that JobSpec and Plan share, then those that differ.
    plan = replace(
        Plan(**{key.name: getattr(spec, key.name) for key in fields(Plan) if key.name in JobSpec.model_fields}),
        code_path=spec.inputs.code_path,
        code_id=code_id,
        module="" if spec.command else spec.module or trainer_module(spec.workload, spec.launcher),
        # Recipes name the configurations of verl by paths that begin at its root.
        directory=f"{archive}/{OUTPUT}" if spec.command else spec.inputs.code_path if spec.module else "",
        overrides=tuple(merge_overrides(overrides, spec.trainer_overrides)),
        driver_env={**driver_env, **forwarded},
        entrypoint=entrypoint(archive),
        entrypoint_num_gpus=spec.gpus,
        nnodes=size.nnodes,
        gpus_per_node=size.gpus_per_node,
        cpus_per_node=size.cpus_per_node,
        pools=pools_of(spec, size),
        tags=tuple(f"{name}={value}" for name, value in spec.tags.items()),
        # Whether another trainer uses it is not known.
        transfer_queue=may_use_queue(spec, profile) and not spec.module,
        resumed_from=spec.resume_from,
        resumed_from_step=checkpoint.step if checkpoint else None,
    )
    runtime_env = {"env_vars": variables, **({"worker_process_setup_hook": HOOK} if hook else {})}
    return Job(submission_id, archive, plan, {**spec.runtime_env, **runtime_env}, dict(spec.tags))
