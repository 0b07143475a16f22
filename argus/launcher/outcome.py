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
from .failure_rules import CACHE, CAUSES, CONSEQUENCES, RAISE_PROCESSES, UNWRITTEN
from .log import ENGINE_PROCESS
from .watch import ENDED_BY_WATCH

# Failures after which a trainer may hang instead of ending, and an inference engine may end.
CAUSES_OF_STALLS = (
    *(FailureKind.HOST_OOM, FailureKind.GPU_OOM, FailureKind.GPU_FAULT, FailureKind.LIMIT),
    *(FailureKind.DISK_FULL, FailureKind.NODE_LOST),
)

TRAINER = "the trainer"
# The number of last lines of an engine's output that are searched for the reason of its end.
MAX_ENGINE_LINES = 200
# The words of less_gpu_memory beside settings.
LESS_MEMORY = "lower or set and or use more GPUs. nvidia-smi shows whether other processes use them too."
SETTING_WORD = re.compile(r"(?:actor_rollout_ref|model|data|engine)(?:\.\w+)+(?:=true)?,?")


@dataclass(frozen=True)
class End:
    """How an attempt ended.

    exit_code: the trainer's, negative for a signal. problem: of the precheck; the trainer was not started then.
    stopped_by: the signal that ended the launcher, and steward_verdict: why the steward had it sent, if it did.
    watch_verdict: why the launcher itself ended the trainer. log: the end of the attempt's log.
    steps: the last step of the job. attempt_steps: how many this attempt did. total_steps: how many the trainer
    intended to do. overrides: those of the trainer. oom_kills: how many processes of the driver's node the kernel has
    ended meanwhile, as there was no memory left. refused_processes: how often it refused to start a process or a thread
    there. engine: with which words an engine ended, if one did. has_space: whether another checkpoint would fit.
    program: what ran, for people.
    """

    exit_code: int
    log: str = ""
    problem: str = ""
    stopped_by: int | None = None
    steward_verdict: Failure | None = None
    watch_verdict: Failure | None = None
    steps: int = 0
    attempt_steps: int = 0
    total_steps: int | None = None
    overrides: Sequence[str] = ()
    oom_kills: int = 0
    refused_processes: int = 0
    engine: str = ""
    has_space: bool = False
    program: str = TRAINER


@dataclass(frozen=True)
class Outcome:
    """The job's state; ENDING if the steward has to determine the cause of the failure."""

    state: JobState
    failure: Failure | None = None
    reason: str = ""


def outcome(end: End) -> Outcome:
    if end.stopped_by:
        if end.steward_verdict:
            stopped = end.steward_verdict.kind is FailureKind.STOPPED
            return Outcome(JobState.STOPPED if stopped else JobState.FAILED, end.steward_verdict)
        return Outcome(JobState.STOPPED, failures.failure(FailureKind.STOPPED, f"stopped with signal {end.stopped_by}"))
    if end.watch_verdict:
        return outcome_of_failure(cause_of_verdict(end, end.watch_verdict))
    if end.problem:
        return Outcome(JobState.FAILED, failures.failure(FailureKind.IMPORT, end.problem))
    if end.exit_code == 0:
        return outcome_without_error(end)
    failure = classify(end, end.log, end.exit_code)
    return outcome_of_failure(replace(failure, reason=failure.reason.replace(TRAINER, end.program, 1)))


def outcome_of_failure(failure: Failure) -> Outcome:
    return Outcome(JobState.ENDING if failure.kind in NODE_LOSS_SIGNS else JobState.FAILED, failure)


def cause_of_verdict(end: End, verdict: Failure) -> Failure:
    """The failure after which the trainer stalled, if its log shows one; otherwise the verdict."""
    if verdict.kind not in (FailureKind.STALLED, FailureKind.ENGINE_LOST):
        return verdict
    log = end.log.partition(f"\n{ENDED_BY_WATCH}")[0]
    failure = classify(end, log, 1)
    if failure.kind in CAUSES_OF_STALLS:
        return failure
    if verdict.kind is FailureKind.STALLED:
        return verdict
    outputs = (process_and_text(line) for line in log.splitlines())
    # The log of an engine's start contains no cause.
    engine_lines = [(process, text) for process, text in outputs if ENGINE_PROCESS.match(process)][-MAX_ENGINE_LINES:]
    cause = classify(end, "\n".join(text for _process, text in engine_lines), 1)
    lines = last_lines("\n".join(f"({process}) {text}" for process, text in engine_lines))
    return replace(verdict, lines=lines) if cause.kind in NODE_LOSS_SIGNS else cause


def classify(end: End, log: str, exit_code: int) -> Failure:
    failure = diagnosis.classify(log, exit_code, end.attempt_steps)
    if failure.kind is FailureKind.ENGINE_LOST and end.engine and diagnosis.WRAPPER.search(failure.reason):
        # Its requests fail one by one, each with a traceback, so its own message may be megabytes above.
        cause = diagnosis.classify(end.engine, exit_code)
        failure = replace(failure, reason=f"an engine ended: {end.engine}") if cause.kind in NODE_LOSS_SIGNS else cause
    if failure.kind is FailureKind.KILLED and end.oom_kills:
        processes = "a process" if end.oom_kills == 1 else f"{end.oom_kills} processes"
        reason = f"{failure.reason}; meanwhile the kernel ended {processes} on the driver's node for lack of memory"
        return replace(failure, reason=reason, todo=failures.REMEDIES[FailureKind.HOST_OOM])
    if failure.kind in (*NODE_LOSS_SIGNS, FailureKind.NODE_LOST) and end.refused_processes:
        times = f"{end.refused_processes} times" if end.refused_processes > 1 else "once"
        reason = f"{failure.reason}; meanwhile the driver's node reached its limit of processes and threads {times}"
        return replace(failure, kind=FailureKind.LIMIT, reason=reason, todo=RAISE_PROCESSES)
    if failure.reason.startswith(UNWRITTEN) and end.has_space:
        return replace(failure, kind=FailureKind.STORAGE, todo=failures.REMEDIES[FailureKind.STORAGE])
    usual = failure.kind is FailureKind.GPU_OOM and failure.todo == failures.REMEDIES[failure.kind]
    return replace(failure, todo=less_gpu_memory(end.overrides)) if usual else failure


def less_gpu_memory(overrides: Sequence[str]) -> str:
    """The remedy after a GPU ran out of memory, for a job with these overrides."""
    settings = {override_key(override): override_text(override).lower() for override in overrides}
    is_rl = any(key.startswith("actor_rollout_ref.") for key in settings)
    model, batches, size, engine = "model", "data", "", "engine"
    if is_rl:
        model, batches, size = "actor_rollout_ref.model", "actor_rollout_ref.actor", "ppo_"
        engine = f"{batches}.{'megatron' if any('megatron' in override for override in overrides) else 'fsdp_config'}"
    # verl reads one of the two; see job.batches.
    is_fixed = settings.get(f"{batches}.use_dynamic_bsz") == "false"
    limit = f"{batches}.{size}{'micro_batch_size' if is_fixed else 'max_token_len'}_per_gpu"
    lower = [*([] if settings.get(limit) == "1" else [limit]), *([CACHE] if is_rl else [])]
    # The settings that save memory, with verl's defaults.
    savings = {f"{model}.enable_gradient_checkpointing": "true"}
    savings |= {f"{engine}.param_offload": "false", f"{engine}.optimizer_offload": "false"}
    unused = [f"{key}=True" for key, usual in savings.items() if settings.get(key, usual) != "true"]
    advice = [f"lower {' or '.join(lower)}"] if lower else []
    advice += [f"set {' and '.join(unused)}"] if unused else []
    text = ", ".join([*advice, "or use more GPUs"])
    return f"{text[0].upper()}{text[1:]}. nvidia-smi shows whether other processes use them too."


def advice(failure: Failure) -> str:
    """The remedy if it has only words of this collection and settings of verl: jobs can write into their archives."""
    rules = (*CAUSES, *CONSEQUENCES)
    texts = (
        failures.NODE_REMOVED_REMEDY,
        failures.TOO_LARGE_REMEDY,
        LESS_MEMORY,
        *failures.REMEDIES.values(),
        *(rule.remedy for rule in rules),
    )
    vocabulary = {word for text in texts for word in text.lower().split()}
    words = failure.todo.lower().split()
    is_advice = words and all(word in vocabulary or SETTING_WORD.fullmatch(word) for word in words)
    return failure.todo if is_advice else failures.REMEDIES[failure.kind]


def outcome_without_error(end: End) -> Outcome:
    """verl reports no error; a run that trained nothing has failed all the same, unless it was to validate only."""
    if end.program != TRAINER or is_true(end.overrides, VAL_ONLY):
        return Outcome(JobState.SUCCEEDED)
    complete = end.total_steps is not None and end.steps >= end.total_steps
    if not end.attempt_steps and not complete:
        # sft_trainer.py: resumed exactly at an epoch's end, the data loader has nothing left.
        at = f"at step {end.steps} of {end.total_steps or 'unknown'}"
        failure = failures.failure(FailureKind.DATA, f"the trainer ended without an error and without any step, {at}")
        return Outcome(JobState.FAILED, failure)
    if complete or end.total_steps is None:
        return Outcome(JobState.SUCCEEDED)
    return Outcome(JobState.SUCCEEDED, reason=f"the data ended at step {end.steps} of {end.total_steps}")
