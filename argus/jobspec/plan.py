# SPDX-License-Identifier: Apache-2.0
"""Plans a job: from a checked JobSpec and a cluster, the plan for the archive and the environment for Ray."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from ..archive.archive import JOB_CONFIG_VARIABLE, JOB_VARIABLE, OUTPUT_DIRECTORY
from ..archive.checkpoints import Checkpoint
from ..archive.plan import TORCHRUN, Plan
from ..archive.program import Program, entrypoint
from ..common.shared_root import USER_CODE_DIR, archive_path
from ..hooks import worker_secrets
from ..io.hydra import merge_overrides
from ..launcher import torchrun
from ..queue.attempts import METRICS_VARIABLE
from .capacity import Cluster, pools_of, size_of
from .environment import repeatable_variables, requested_variables
from .overrides import default_overrides
from .spec import JobSpec
from .verl_releases import SFT, Profile, trainer_module

# verl's main_ppo puts these variables into the runtime_env of its own ray.init. Ray refuses two values for one variable
# ("Failed to merge the Job's runtime env"), so only the driver gets them, and verl forwards them to its workers.
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
# Variables that are left out of the printed trainer command. With them, a process that someone starts by hand would
# count as one of the job, and verl would empty the file with the job's metrics.
NOT_IN_COMMAND = (JOB_VARIABLE, worker_secrets.ARCHIVE_VARIABLE, METRICS_VARIABLE, "RAY_JOB_STOP_WAIT_TIME_S")
# Stands for a server whose address is not known yet.
NO_ADDRESS = "http://127.0.0.1:9"
# Ray runs this function first in every worker process of a job with secrets or a TransferQueue.
WORKER_HOOK = "argus.hooks.isolation.enter_worker"


@dataclass(frozen=True)
class Job:
    """A job that is ready to be archived and submitted: its plan, and what Ray gets with it."""

    submission_id: str
    archive: str  # its path on the shared root
    plan: Plan
    runtime_env: Mapping[str, Any]  # Ray's runtime environment, always with env_vars
    tags: Mapping[str, object]

    def submit_command(self) -> str:
        """The equivalent `ray job submit` command for the first attempt, to run on the head."""
        plan = self.plan
        gpus = f"--entrypoint-num-gpus {plan.entrypoint_num_gpus:g} " if plan.entrypoint_num_gpus else ""
        return (
            f"ray job submit --no-wait --address {shlex.quote(plan.address)} --submission-id {self.submission_id} "
            f"--entrypoint-num-cpus {plan.entrypoint_num_cpus:g} {gpus}"
            f"--entrypoint-resources {shlex.quote(json.dumps(plan.entrypoint_resources))} "
            f"--runtime-env {shlex.quote(f'{self.archive}/config/runtime_env.json')} -- {plan.entrypoint} 1\n"
        )

    def train_command(self) -> str:
        """The command that starts the trainer by hand on a worker, without the launcher and the values of secrets."""
        env_vars = {name: value for name, value in self.runtime_env["env_vars"].items() if name not in NOT_IN_COMMAND}
        # The hook reads the job's file of secrets, which is removed when the job ends.
        other_parts = {name: value for name, value in self.runtime_env.items() if name != "worker_process_setup_hook"}
        # Ray passes its runtime environment to a driver in this variable. Without it, workers would not get env_vars.
        config = json.dumps({"runtime_env": {**other_parts, "env_vars": env_vars}})
        variables = {**env_vars, **self.plan.driver_env, JOB_CONFIG_VARIABLE: config}
        assignments = [f"{name}={value}" for name, value in variables.items()]
        command = self.plan.command or ("python3", "-m", self.plan.module, *self.plan.overrides)
        if self.plan.launcher == TORCHRUN:
            # For the first node; the others have another rank.
            ranks = torchrun.torchrun_arguments(self.plan, "0", "MASTER_ADDRESS", "29500")
            command = ("python3", "-m", torchrun.TORCHRUN_MODULE, *ranks, *command[1:])
        directory = [f"--chdir={self.plan.directory}"] if self.plan.directory else []
        return f"{shlex.join(['env', *directory, *assignments, *command])}\n"

    def with_python_path(self, python_path: str) -> Job:
        """The same job with the directories of this PYTHONPATH after those that it has."""
        variables = dict(self.runtime_env["env_vars"])
        # An empty entry would stand for the current directory.
        variables["PYTHONPATH"] = ":".join(filter(None, (variables["PYTHONPATH"], *python_path.split(":"))))
        return replace(self, runtime_env={**self.runtime_env, "env_vars": variables})


def uses_transfer_queue_by_default(spec: JobSpec, profile: Profile | None) -> bool:
    """Whether the trainer keeps its samples in TransferQueue by default; the composed configuration can disable it."""
    return profile is not None and spec.workload != SFT and profile.transfer_queue


def job_environment(spec: JobSpec, archive: str, runs_hook: bool) -> dict[str, str]:
    """The environment of the driver and its workers: the variables of the JobSpec, and those that every job needs."""
    requested, reward = requested_variables(spec), spec.inputs.reward
    program_path = Program.of_this_process().python_path if runs_hook else ""  # workers import the hook
    imports_user_code = spec.module or spec.command or (reward and reward.module)
    user_code = f"{spec.shared_root}/{USER_CODE_DIR}" if imports_user_code else ""
    # $PYTHONPATH stands for the PYTHONPATH of the nodes, which with_python_path appends later.
    paths = requested.get("PYTHONPATH", "").split(":")
    paths = [path for path in paths if path not in ("$PYTHONPATH", "${PYTHONPATH}")]
    python_path = dict.fromkeys(filter(None, (spec.inputs.code_path, user_code, *paths, program_path)))
    return {
        "HF_HUB_OFFLINE": "1",  # models are staged once, not downloaded by every node
        "PYTHONUNBUFFERED": "1",
        "HYDRA_FULL_ERROR": "1",
        # The defaults would be inside a container.
        "TENSORBOARD_DIR": f"{archive}/logs/tensorboard",
        "MLFLOW_TRACKING_URI": f"sqlite:///{archive}/logs/mlflow.db",
        "TRACKIO_DIR": f"{archive}/logs/trackio",
        "WANDB_DIR": f"{archive}/{WANDB_DIRECTORY}",
        # With this level, the trainer of torchrun logs how many steps it will do.
        **({"VERL_SFT_LOGGING_LEVEL": "INFO"} if spec.launcher == TORCHRUN else {}),
        # Each attempt replaces these with the addresses of its servers.
        **dict.fromkeys(spec.env_from, NO_ADDRESS),
        **requested,
        # The snapshot must come first, and jobs must not write byte code into it.
        "PYTHONPATH": ":".join(python_path),
        "PYTHONDONTWRITEBYTECODE": "1",
        # verl's file logger truncates its file at every start, so each attempt gets its own.
        METRICS_VARIABLE: f"{archive}/logs/metrics-1.jsonl",
        # The first marks every process of the job. By the second, processes find the job's secrets.
        JOB_VARIABLE: archive.rpartition("/")[2],
        worker_secrets.ARCHIVE_VARIABLE: archive,
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
    has_validation_data: bool = True,
) -> Job:
    """The job for a checked JobSpec, on a cluster that has the capacity for it.

    code_id: the id of the code's snapshot, from the marker file in it.
    profile: the snapshot's release of verl, checked to support the JobSpec and the cluster. None for a command.
    checkpoint: the checkpoint to resume from, of the job that resume_from names.
    has_validation_data: whether the dataset has a val.parquet.
    """
    size, archive = size_of(spec, cluster), archive_path(spec.shared_root, submission_id)
    overrides, driver_env = list[str](), dict[str, str]()
    if profile:
        overrides = default_overrides(spec, cluster, submission_id, profile, checkpoint, has_validation_data)
        driver_env = profile.driver_environment(spec.workload, spec.launcher)
    runs_hook = bool(spec.secrets) or uses_transfer_queue_by_default(spec, profile)
    variables = job_environment(spec, archive, runs_hook)
    driver_only = set() if spec.launcher == TORCHRUN else FORWARDED_BY_VERL & variables.keys()
    forwarded = {name: variables.pop(name) for name in driver_only}
    # The plan copies all fields that the JobSpec has as well. The other fields follow.
    copied = {field.name: getattr(spec, field.name) for field in fields(Plan) if field.name in JobSpec.model_fields}
    plan = replace(
        Plan(**copied),
        code_path=spec.inputs.code_path,
        code_id=code_id,
        module="" if spec.command else spec.module or trainer_module(spec.workload, spec.launcher),
        # Recipes name the configurations of verl by paths that begin at its root.
        directory=f"{archive}/{OUTPUT_DIRECTORY}" if spec.command else spec.inputs.code_path if spec.module else "",
        overrides=tuple(merge_overrides(overrides, spec.trainer_overrides)),
        driver_env={**driver_env, **forwarded},
        entrypoint=entrypoint(archive),
        entrypoint_num_gpus=spec.gpus,
        nnodes=size.nnodes,
        gpus_per_node=size.gpus_per_node,
        cpus_per_node=size.cpus_per_node,
        pools=pools_of(spec, size),
        tags=tuple(f"{name}={value}" for name, value in spec.tags.items()),
        # Another trainer than verl's may not use one.
        transfer_queue=uses_transfer_queue_by_default(spec, profile) and not spec.module,
        resumed_from=spec.resume_from,
        resumed_from_step=checkpoint.step if checkpoint else None,
    )
    runtime_env = {"env_vars": variables, **({"worker_process_setup_hook": WORKER_HOOK} if runs_hook else {})}
    return Job(submission_id, archive, plan, {**spec.runtime_env, **runtime_env}, dict(spec.tags))
