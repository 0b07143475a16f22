# SPDX-License-Identifier: Apache-2.0
"""Determines the outcome of an attempt, as a pure function of its launcher's observations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..archive import failures
from ..archive.failures import NODE_LOSS_SIGNS, Failure, FailureKind
from ..archive.plan import VAL_ONLY
from ..archive.status import JobState
from ..io.hydra import is_true, override_key, override_text
from ..io.output import last_lines, process_and_text
from . import diagnosis
from .failure_rules import CACHE_SETTING, CAUSES, CONSEQUENCES, PROCESS_LIMIT_REMEDY, UNWRITTEN_CHECKPOINT
from .log_scan import ENGINE_PROCESS
from .watch import ENDED_BY_WATCH

# The kinds of failure after which a trainer may hang instead of ending, or an inference engine may end.
CAUSES_OF_STALLS = (
    *(FailureKind.HOST_OOM, FailureKind.GPU_OOM, FailureKind.GPU_FAULT, FailureKind.LIMIT),
    *(FailureKind.DISK_FULL, FailureKind.NODE_LOST),
)

TRAINER = "the trainer"
# How many last lines of an engine's output are searched for the reason of its end.
MAX_ENGINE_LINES = 200
# The words of gpu_memory_remedy() besides settings of verl. trusted_advice() allows both.
GPU_MEMORY_REMEDY_WORDS = "lower or set and or use more GPUs. nvidia-smi shows whether other processes use them too."
VERL_SETTING = re.compile(r"(?:actor_rollout_ref|model|data|engine)(?:\.\w+)+(?:=true)?,?")


@dataclass(frozen=True)
class Observations:
    """What a launcher has observed of its attempt, which has ended."""

    # Negative for a signal.
    exit_code: int
    # The end of the attempt's log.
    log: str = ""
    # Why the trainer was not started; "" if the precheck passed.
    precheck_problem: str = ""
    # The signal that the launcher got before the trainer's end, and why the steward had it sent, if it did.
    stop_signal: int | None = None
    stop_cause: Failure | None = None
    # Why the launcher itself ended the trainer; None if it did not.
    watch_failure: Failure | None = None
    # The last step of the job, how many steps this attempt did, and how many the trainer announced.
    last_step: int = 0
    attempt_steps: int = 0
    total_steps: int | None = None
    overrides: Sequence[str] = ()
    # How many processes on the driver's node the OOM killer ended during the attempt.
    oom_kills: int = 0
    # How often the kernel refused to start a process or a thread there.
    failed_forks: int = 0
    # The words with which an inference engine ended; "" if none did.
    engine_failure: str = ""
    has_space_for_checkpoint: bool = False
    # What messages call the program that ran.
    program: str = TRAINER


@dataclass(frozen=True)
class Outcome:
    """The job's state, ENDING if the steward has to determine the cause of the failure. reason: of a success."""

    state: JobState
    failure: Failure | None = None
    reason: str = ""


def determine_outcome(seen: Observations) -> Outcome:
    """The outcome of an attempt: a stop counts first, then the launcher's own reasons, then the trainer's exit code."""
    if signal := seen.stop_signal:
        if seen.stop_cause:
            stopped = seen.stop_cause.kind is FailureKind.STOPPED
            return Outcome(JobState.STOPPED if stopped else JobState.FAILED, seen.stop_cause)
        return Outcome(JobState.STOPPED, failures.failure(FailureKind.STOPPED, f"stopped with signal {signal}"))
    if seen.watch_failure:
        return outcome_of_failure(cause_of_watch_failure(seen, seen.watch_failure))
    if seen.precheck_problem:
        return Outcome(JobState.FAILED, failures.failure(FailureKind.IMPORT, seen.precheck_problem))
    if seen.exit_code == 0:
        return outcome_of_clean_exit(seen)
    failure = classify_with_observations(seen, seen.log, seen.exit_code)
    return outcome_of_failure(replace(failure, reason=failure.reason.replace(TRAINER, seen.program, 1)))


def outcome_of_failure(failure: Failure) -> Outcome:
    return Outcome(JobState.ENDING if failure.kind in NODE_LOSS_SIGNS else JobState.FAILED, failure)


def cause_of_watch_failure(seen: Observations, watch_failure: Failure) -> Failure:
    """The failure after which the trainer stalled or lost its engine, if the log shows one; or else the launcher's."""
    if watch_failure.kind not in (FailureKind.STALLED, FailureKind.ENGINE_LOST):
        return watch_failure
    log = seen.log.partition(f"\n{ENDED_BY_WATCH}")[0]
    failure = classify_with_observations(seen, log, 1)
    if failure.kind in CAUSES_OF_STALLS:
        return failure
    if watch_failure.kind is FailureKind.STALLED:
        return watch_failure
    outputs = (process_and_text(line) for line in log.splitlines())
    # The log of an engine's start contains no cause.
    engine_lines = [(process, text) for process, text in outputs if ENGINE_PROCESS.match(process)][-MAX_ENGINE_LINES:]
    cause = classify_with_observations(seen, "\n".join(text for _process, text in engine_lines), 1)
    lines = last_lines("\n".join(f"({process}) {text}" for process, text in engine_lines))
    return replace(watch_failure, lines=lines) if cause.kind in NODE_LOSS_SIGNS else cause


def classify_with_observations(seen: Observations, log: str, exit_code: int) -> Failure:
    """The failure that a log shows, corrected by what else was observed: engine, OOM killer, forks, free space."""
    failure = diagnosis.classify(log, exit_code, seen.attempt_steps)
    if failure.kind is FailureKind.ENGINE_LOST and seen.engine_failure and diagnosis.WRAPPER.search(failure.reason):
        # The engine's requests fail one by one with tracebacks, so its own may be megabytes earlier in the log.
        cause, reason = diagnosis.classify(seen.engine_failure, exit_code), f"an engine ended: {seen.engine_failure}"
        failure = replace(failure, reason=reason) if cause.kind in NODE_LOSS_SIGNS else cause
    if failure.kind is FailureKind.KILLED and seen.oom_kills:
        processes = "a process" if seen.oom_kills == 1 else f"{seen.oom_kills} processes"
        reason = f"{failure.reason}; meanwhile the kernel ended {processes} on the driver's node for lack of memory"
        return replace(failure, reason=reason, todo=failures.REMEDIES[FailureKind.HOST_OOM])
    if failure.kind in (*NODE_LOSS_SIGNS, FailureKind.NODE_LOST) and seen.failed_forks:
        times = f"{seen.failed_forks} times" if seen.failed_forks > 1 else "once"
        reason = f"{failure.reason}; meanwhile the driver's node reached its limit of processes and threads {times}"
        return replace(failure, kind=FailureKind.LIMIT, reason=reason, todo=PROCESS_LIMIT_REMEDY)
    if failure.reason.startswith(UNWRITTEN_CHECKPOINT) and seen.has_space_for_checkpoint:
        return replace(failure, kind=FailureKind.STORAGE, todo=failures.REMEDIES[FailureKind.STORAGE])
    has_default_remedy = failure.kind is FailureKind.GPU_OOM and failure.todo == failures.REMEDIES[failure.kind]
    return replace(failure, todo=gpu_memory_remedy(seen.overrides)) if has_default_remedy else failure


def gpu_memory_remedy(overrides: Sequence[str]) -> str:
    """The remedy for a job with these overrides that ran out of GPU memory: settings that it has not used yet."""
    settings = {override_key(override): override_text(override).lower() for override in overrides}
    is_rl = any(key.startswith("actor_rollout_ref.") for key in settings)
    model, batches, size, engine = "model", "data", "", "engine"
    if is_rl:
        model, batches, size = "actor_rollout_ref.model", "actor_rollout_ref.actor", "ppo_"
        engine = f"{batches}.{'megatron' if any('megatron' in override for override in overrides) else 'fsdp_config'}"
    # verl reads one of the two limits.
    is_fixed = settings.get(f"{batches}.use_dynamic_bsz") == "false"
    limit = f"{batches}.{size}{'micro_batch_size' if is_fixed else 'max_token_len'}_per_gpu"
    lower = [*([] if settings.get(limit) == "1" else [limit]), *([CACHE_SETTING] if is_rl else [])]
    # The settings that save memory, with verl's defaults.
    savings = {f"{model}.enable_gradient_checkpointing": "true"}
    savings |= {f"{engine}.param_offload": "false", f"{engine}.optimizer_offload": "false"}
    unused = [f"{key}=True" for key, default in savings.items() if settings.get(key, default) != "true"]
    advice = [f"lower {' or '.join(lower)}"] if lower else []
    advice += [f"set {' and '.join(unused)}"] if unused else []
    text = ", ".join([*advice, "or use more GPUs"])
    return f"{text[0].upper()}{text[1:]}. nvidia-smi shows whether other processes use them too."


def trusted_advice(failure: Failure) -> str:
    """The failure's remedy if all of its words are known, or else that of its kind: a job can write to its archive."""
    rules = (*CAUSES, *CONSEQUENCES)
    texts = (
        failures.NODE_REMOVED_REMEDY,
        failures.TOO_LARGE_REMEDY,
        GPU_MEMORY_REMEDY_WORDS,
        *failures.REMEDIES.values(),
        *(rule.remedy for rule in rules),
    )
    vocabulary = {word for text in texts for word in text.lower().split()}
    words = failure.todo.lower().split()
    is_advice = words and all(word in vocabulary or VERL_SETTING.fullmatch(word) for word in words)
    return failure.todo if is_advice else failures.REMEDIES[failure.kind]


def outcome_of_clean_exit(seen: Observations) -> Outcome:
    """The outcome after exit code 0. A trainer that did no step has failed, unless it was to validate only."""
    if seen.program != TRAINER or is_true(seen.overrides, VAL_ONLY):
        return Outcome(JobState.SUCCEEDED)
    complete = seen.total_steps is not None and seen.last_step >= seen.total_steps
    if not seen.attempt_steps and not complete:
        # sft_trainer.py: resumed exactly at an epoch's end, the data loader has nothing left.
        at = f"at step {seen.last_step} of {seen.total_steps or 'unknown'}"
        failure = failures.failure(FailureKind.DATA, f"the trainer ended without an error and without any step, {at}")
        return Outcome(JobState.FAILED, failure)
    if complete or seen.total_steps is None:
        return Outcome(JobState.SUCCEEDED)
    return Outcome(JobState.SUCCEEDED, reason=f"the data ended at step {seen.last_step} of {seen.total_steps}")
