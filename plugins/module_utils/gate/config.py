# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What verl would refuse in a composed configuration only after minutes, or would take and not do.

All of it is pure, and needs no other file of the collection. Each rule was read in verl 0.9.1 and names the file and
the function, below verl/; `since` is the first release that has it too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .config_rl import RL_RULES
from .config_sft import sft_batches, sft_lengths
from .settings import MISSING, Found, Job, Problem, Values

# utils/tracking.py:Tracking.__init__. What a logger needs of the job's environment, what happens without, and instead.
ACCOUNTS = {
    "wandb": ("WANDB_API_KEY", "WANDB_MODE", "wandb asks for an account, and nobody is there to answer"),
    "swanlab": ("SWANLAB_API_KEY", "SWANLAB_MODE", "swanlab asks for an account, and nobody is there to answer"),
    "clearml": ("CLEARML_API_ACCESS_KEY", "CLEARML_CONFIG_FILE", "clearml has no server to report to"),
    "vemlp_wandb": ("VOLC_ACCESS_KEY_ID", "", "vemlp_wandb ends the job"),
    "mlflow": ("MLFLOW_TRACKING_URI", "", "mlflow writes to /tmp/mlruns.db in one of the containers"),
    "tensorboard": ("TENSORBOARD_DIR", "", "tensorboard writes to tensorboard_log/ in one of the containers"),
}


def config_findings(
    config: Mapping[str, Any],
    workload: str,
    nnodes: int,
    gpus_per_node: int,
    version: str = "0.9.1",
    environment: Mapping[str, str] | None = None,
) -> list[dict[str, str]]:
    """All that is wrong with a composed configuration, each with where, what, todo and severity.

    environment: the job's, with the names of its secrets.
    """
    release = tuple(int(part) for part in re.findall(r"\d+", version)[:3])
    job = Job(Values(config), workload, nnodes, gpus_per_node, release, environment or {})
    rules = [missing, size, length_of_training, checkpoints, loggers, resuming]
    rules += [sft_batches, sft_lengths] if workload == "sft" else RL_RULES
    return [vars(problem).copy() for rule in rules for problem in rule(job)]


def missing(job: Job) -> Found:
    # omegaconf: MissingMandatoryValue, when verl reads it.
    for key in missing_keys(job.get.config):
        yield Problem(key, "has no value, and verl has no default for it", f"set {key}")


def missing_keys(node: Any, path: str = "") -> list[str]:
    """The keys that have to be given and are not, without those of parts that are switched off."""
    if node == MISSING:
        return [path]
    if not isinstance(node, Mapping) or node.get("enable") is False or node.get("enabled") is False:
        return []
    return [name for key, value in node.items() for name in missing_keys(value, f"{path}.{key}" if path else str(key))]


def size(job: Job) -> Found:
    # The job's size is decided by the JobSpec; an override of a parent, as in trainer={…}, would change it.
    for key, expected in (("trainer.nnodes", job.nnodes), ("trainer.n_gpus_per_node", job.gpus_per_node)):
        value = job.get(key)
        if value != expected:
            yield Problem(key, f"is {value}, and the job has {expected}", "say it with resources in the JobSpec")


def length_of_training(job: Job) -> Found:
    # trainer/ppo/v1/trainer_base.py:fit, trainer/sft_trainer_ray.py:fit: range(…, total_epochs)
    if job.get.number("trainer.total_epochs", 1) < 1:
        yield Problem("trainer.total_epochs", "is below 1: nothing is trained, and the job succeeds", "give 1 or more")
    # trainer/ppo/v1/trainer_base.py:fit: while self.global_steps <= self.total_training_steps
    if job.workload != "sft" and job.get.number("trainer.total_training_steps", 1) < 1:
        what = "is below 1: nothing is trained, and the job succeeds"
        yield Problem("trainer.total_training_steps", what, "give 1 or more, or null for all epochs")


def checkpoints(job: Job) -> Found:
    every = job.get("trainer.save_freq")
    if job.workload == "sft":
        # trainer/sft_trainer_ray.py:fit: global_step % self.save_freq
        for key in ("trainer.save_freq", "trainer.test_freq"):
            if job.get(key) == 0:
                yield Problem(
                    key, "is 0: the job ends with ZeroDivisionError after its first step", "give -1 for never"
                )
        # trainer/sft_trainer_ray.py:fit: is_last_step or (self.save_freq > 0 and is_save_step)
        if isinstance(every, int) and every < 0:
            what = f"is {every}: only the last step is saved, and a job that fails before has nothing to resume from"
            yield Problem("trainer.save_freq", what, "give a number of steps", "warning")
    # trainer/ppo/v1/trainer_base.py:fit: self.config.trainer.save_freq > 0 and (is_last_step or …)
    elif isinstance(every, int) and every <= 0:
        what = f"is {every}: nothing is saved, not even the last step"
        yield Problem("trainer.save_freq", what, "give a number of steps", "warning")


def loggers(job: Job) -> Found:
    named = job.get("trainer.logger") or []
    for logger in [named] if isinstance(named, str) else named:
        variable, instead, otherwise = ACCOUNTS.get("wandb" if logger == "tracking" else logger, ("", "", ""))
        if variable and variable not in job.environment and instead not in job.environment:
            names = f"{variable} or {instead}" if instead else variable
            what = f"has {logger}, and the job's environment has no {names}: {otherwise}"
            yield Problem("trainer.logger", what, f"set {names} for the job, or leave {logger} out", "warning")


def resuming(job: Job) -> Found:
    # trainer/ppo/v1/trainer_base.py:_load_checkpoint, utils/checkpoint/checkpoint_handler.py:_determine_resume_path
    mode, path = job.get("trainer.resume_mode"), job.get("trainer.resume_from_path")
    if mode not in (None, "auto", "disable", "resume_path"):
        yield Problem("trainer.resume_mode", f"is {mode}", "give auto, disable or resume_path")
    if mode == "resume_path" and not (isinstance(path, str) and "global_step_" in path):
        what = f"is {path}, and resume_mode is resume_path"
        yield Problem("trainer.resume_from_path", what, "give the path of a global_step_<number>")
