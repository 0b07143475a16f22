# SPDX-License-Identifier: Apache-2.0
"""Runs all checks of a job on one worker, and checks steps and checkpoints. Comments name files below verl/."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from operator import mul
from typing import NamedTuple

from ..common.findings import WARNING, Finding, about
from ..common.text import size_text
from .job_dataset import dataset_findings
from .model import DTYPE_BYTES, model_findings
from .packages import debugger_findings, requirement_findings
from .paths import path_findings
from .prompts import prompt_findings
from .request import CheckRequest, Facts, error_text
from .reward import reward_findings

# Checkpoints that take more than this share of the free space cause a warning.
ALMOST_FULL = 0.8
# The only trainer mode in which no samples are in flight during a save.
SYNC_MODE = "sync"
# What TransferQueue saves for each token of a sample in flight.
QUEUED_TOKEN_BYTES = 120
RESUMED_STEP = re.compile(r"global_step_(?P<step>[0-9]{1,15})")


class TrainedModel(NamedTuple):
    """A model that the job trains and saves, and where its settings are."""

    name: str  # for people
    model: str  # the key of the section of the model
    engine: str  # the key of the section of its engine
    trainer_prefix: str  # the prefix of the keys of its trainer, with the dot; "" for settings at the top
    keep: str  # the key of the number of checkpoints to keep


MODEL = TrainedModel("model", "model", "engine", "", "trainer.max_ckpt_to_keep")
ACTOR = TrainedModel(
    "actor",
    "actor_rollout_ref.model",
    "actor_rollout_ref.actor.fsdp_config",
    "actor_rollout_ref.actor.",
    "trainer.max_actor_ckpt_to_keep",
)
CRITIC = TrainedModel("critic", "critic.model", "critic.fsdp", "critic.", "trainer.max_critic_ckpt_to_keep")


def space_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    """Findings about steps that are not saved, and about checkpoints that do not fit. Fills in their facts."""
    status = os.statvfs(request.shared_root)
    free = facts.free_bytes = status.f_bavail * status.f_frsize
    if request.config is None:
        return []
    findings, saved_count = check_steps(request, facts)
    if saved_count is None:
        return findings
    parts = [MODEL] if request.is_sft else [ACTOR, CRITIC] if request.has_critic else [ACTOR]
    kept = [kept_count(request, part, saved_count) for part in parts]
    sizes = [checkpoint_bytes(request, part, facts) for part in parts]
    if not all(sizes):
        return findings
    queue_size = queue_bytes(request)
    facts.checkpoint_bytes, facts.checkpoints_kept = sum(sizes) + queue_size, max(kept)
    # verl removes the states of TransferQueue with no checkpoint.
    needed = facts.checkpoint_space = sum(map(mul, kept, sizes)) + saved_count * queue_size
    if not needed or needed < ALMOST_FULL * free:
        return findings
    terms = "; ".join(
        f"{part.name}: {count} of {saved_count} at a time, {size_text(size)} each"
        for part, count, size in zip(parts, kept, sizes, strict=True)
    )
    text = f"checkpoints need about {size_text(needed)} ({terms}), but {request.shared_root} has {size_text(free)} free"
    remedy = f"raise trainer.save_freq, lower {' and '.join(part.keep for part in parts)}, or free space"
    if needed <= free:
        return [*findings, about("shared_root", text, remedy, WARNING)]
    # Other strategies than FSDP write other files, of a size that was never measured here.
    strategies = [str(request.setting(f"{part.trainer_prefix or 'engine.'}strategy", "fsdp")) for part in parts]
    is_measured = all(strategy.startswith("fsdp") for strategy in strategies)
    severity = request.severity_of("space") if is_measured else WARNING
    return [*findings, about("shared_root", text, f"{remedy}, or set accept: [space]", severity)]


def queue_bytes(request: CheckRequest) -> int:
    """The size of the state of TransferQueue in a checkpoint: trainer/ppo/v1/trainer_base.py: _save_checkpoint.

    This estimate is for a whole batch in flight. Two real checkpoints had 98 and 82 % of the estimate.
    """
    if request.is_sft or request.setting("trainer.v1.trainer_mode", SYNC_MODE) == SYNC_MODE:
        return 0
    samples = request.number("data.train_batch_size") * request.number("actor_rollout_ref.rollout.n", 1)
    return samples * request.max_sequence_length * QUEUED_TOKEN_BYTES


def check_steps(request: CheckRequest, facts: Facts) -> tuple[list[Finding], int | None]:
    """Findings about the steps of the job, and the number of checkpoints that it writes; None if that is unknown."""
    rows, batch = facts.train_rows, request.number("data.train_batch_size")
    epochs, limit = request.setting("trainer.total_epochs", 1), request.setting("trainer.total_training_steps")
    # The checks of numbers report values of the wrong type.
    if not rows or not batch or not isinstance(epochs, int) or not isinstance(limit or 0, int):
        return [], None
    steps_per_epoch = rows // batch
    steps = steps_per_epoch * epochs
    findings: list[Finding] = []
    is_complete = True
    if limit is not None and limit > steps > 0:
        # trainer/sft_trainer_ray.py and trainer/ppo/v1/trainer_base.py: fit. The loop ends with the epochs, and only
        # the step whose number is total_training_steps counts as the last.
        is_complete = False
        problem = (
            f"trainer.total_training_steps={limit}, but trainer.total_epochs={epochs} ends the job after {steps} steps "
            f"({rows} rows in batches of {batch})"
        )
        remedy = "raise trainer.total_epochs; otherwise the last steps are not saved"
        findings.append(about("trainer_overrides", problem, remedy, WARNING))
    elif limit is not None and steps:
        steps = limit
    facts.steps = steps
    findings += resume_findings(request, steps, steps_per_epoch, epochs)
    save_freq = request.setting("trainer.save_freq", -1)
    save_freq = steps_per_epoch if save_freq == "after_each_epoch" else save_freq
    # SFT saves its last step even with save_freq=-1, RL does not.
    is_last_saved = is_complete and (save_freq > 0 or request.is_sft)
    saved_count = steps // save_freq if save_freq > 0 else 0
    if steps and is_last_saved and (save_freq <= 0 or steps % save_freq):
        saved_count += 1
    return findings, saved_count


def resume_findings(request: CheckRequest, steps: int, steps_per_epoch: int, epochs: int) -> Iterator[Finding]:
    """Findings about the steps left to train after the checkpoint that the job resumes from."""
    match = RESUMED_STEP.search(str(request.setting("trainer.resume_from_path") or ""))
    step = int(match["step"]) if match else 0
    if not match or not steps:
        return
    if step >= steps:
        problem = f"its checkpoint is of step {step}, and the job has {steps} steps: nothing is left to train"
        yield about("resume_from", problem, "raise trainer.total_training_steps or trainer.total_epochs")
    # trainer/sft_trainer_ray.py: fit. At the end of an epoch, the state of the data loader has no rows left for the
    # next one. Of the last steps, only the very last is saved.
    elif request.is_sft and step and step % steps_per_epoch == 0 and steps > (last := steps_per_epoch * (epochs - 1)):
        problem = (
            f"its checkpoint of step {step} is the end of an epoch: verl's SFT trainer skips the next one, ends at "
            f"step {last} of {steps}, and does not save its last steps"
        )
        remedy = f"set trainer.total_epochs={epochs + 1} and trainer.total_training_steps={steps}"
        yield about("resume_from", problem, remedy, WARNING)


def kept_count(request: CheckRequest, part: TrainedModel, saved_count: int) -> int:
    """The number of checkpoints that exist at the same time: utils/checkpoint/checkpoint_manager.py."""
    limit = 1 if request.setting("trainer.remove_previous_ckpt_in_save", False) else request.setting(part.keep)
    if not isinstance(limit, int) or limit <= 0:
        return saved_count
    # With a limit of 1, the old one is removed after the new one is written; with more, before that.
    return min(saved_count, max(limit, 2))


def checkpoint_bytes(request: CheckRequest, part: TrainedModel, facts: Facts) -> int:
    """The size of a checkpoint of one model; 0 if it is unknown.

    The contents are those of utils/checkpoint/fsdp_checkpoint_manager.py: save_checkpoint. For a model of 124,096
    parameters, the estimate is 97 % of the real size (actor), 96 % (with hf_model) and 116 % (critic, which has no
    output layer). What it leaves out does not grow with the model.
    """
    parameter_count = facts.critic_parameters if part == CRITIC else facts.parameters
    contents = request.setting(f"{part.trainer_prefix}checkpoint.save_contents", ["model", "optimizer", "extra"])
    # Training is in fp32 by default (trainer/config/engine/fsdp.yaml), and so are Adam's two moments.
    parameter_bytes = DTYPE_BYTES.get(request.setting(f"{part.engine}.model_dtype", "fp32"), 4)
    lora_rank = request.setting(f"{part.model}.lora_rank") or request.setting(f"{part.model}.lora.rank") or 0
    has_lora = lora_rank > 0
    values_per_parameter = 0
    if "model" in contents and not (
        has_lora and request.setting(f"{part.trainer_prefix}checkpoint.save_lora_only", False)
    ):
        values_per_parameter += 1
    if "optimizer" in contents and not has_lora:
        values_per_parameter += 2
    # hf_model is the whole model once more, in the type of training.
    if "hf_model" in contents:
        values_per_parameter += 1
    return (parameter_count or 0) * parameter_bytes * values_per_parameter


Check = Callable[[CheckRequest, Facts], Iterable[Finding]]
# Each check with the name that its findings and durations have. Later checks read facts of earlier ones.
CHECKS: tuple[tuple[str, Check], ...] = (
    ("paths", path_findings),
    ("dataset", dataset_findings),
    ("model", model_findings),
    ("prompts", prompt_findings),
    ("reward_fn_path", reward_findings),
    ("code_path", requirement_findings),
    ("debugger", debugger_findings),
    ("shared_root", space_findings),
)


def check_worker(request: CheckRequest) -> tuple[list[Finding], Facts]:
    """Run all checks in their order. Returns the findings, and the facts that the checks have filled in."""
    findings: list[Finding] = []
    facts = Facts()
    for key, check in CHECKS:
        started = time.monotonic()
        try:
            findings += check(request, facts)
        except Exception as error:
            # An unexpected file format must not stop a good job.
            problem = f"could not be checked: {type(error).__name__}: {error_text(error)}"
            findings.append(about(key, problem, "report this error; the job itself may be fine", WARNING))
        facts.seconds[key] = round(time.monotonic() - started, 3)
    return findings, facts
