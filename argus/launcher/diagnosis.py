# SPDX-License-Identifier: Apache-2.0
"""Finds the reason why a job failed in the end of its driver's log, by the rules of `failure_rules`.

The trainer ends with the exception of its driver, which Ray often copies from another process. If that exception only
reports that another process failed (a wrapper), the earlier output of that process is read instead.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..archive.failures import REMEDIES, Failure, FailureKind
from ..io.output import (
    DRIVER,
    FRAME,
    REMOTE_ERROR,
    UNDERLINE,
    USER_CODE,
    PrintedError,
    last_lines,
    output_by_process,
    printed_errors,
    shorten,
    tracebacks,
)
from .failure_rules import CAUSES, CONSEQUENCES, DEAD_WORKER, LOST_PEER, Rule

# Hydra prints the exception with which the trainer ended after this line.
HYDRA_ERROR = "Error executing job with overrides:"
# The settings that reasons may name: the text to use if the log lacks the setting, and a pattern for its value.
SETTINGS = {
    "train_files": ("?", re.compile(r"\bdata\.train_files=([^',\]\s]+)")),
    "checkpoints": ("?", re.compile(r"\btrainer\.default_local_dir=([^',\]\s]+)")),
    "session": ("Ray's session", re.compile(r"\bfile_system_monitor\.cc:\d+: (\S+) is over")),
}
# `torchrun` prints this on the driver's node. The cause is in the output of a rank.
TORCHRUN_FAILED = "torchrun has failed on a node"
# Exceptions of verl, Ray, torchrun, vLLM and SGLang that tell only that another process failed.
WRAPPER = re.compile(
    r"^(?:\w+\.)*(?:EOFError|(?:RayTask|RayActor|Actor\w{4,11}|WorkerCrashed|ChildFailed|CalledProcess|BrokenPipe"
    r"|ServerDisconnected|EngineDead|AsyncEngineDead|EngineGenerate|ProcessExited|ProcessRaised)\w*|BrokenProcessPool"
    r"|CancelledError)\b|[Ss]ee (?:the )?(?:root cause|stack trace)|Failed core proc|scheduler (?:is dead|died)"
    rf"|no materializable trajectories|{TORCHRUN_FAILED}|Job supervisor actor died|Background loop|Executor failed"
    r"|RPC call to \w+ timed out"
)
# vllm/v1/engine/utils.py, wait_for_engine_startup, raises this. The engine's own reason is above in the log, if any.
ENGINE_START_FAILED = "Engine core initialization failed"
# Ray's line about an actor whose process has died.
DEAD_PROCESS = re.compile(r"^\tpid: (?P<pid>\d{1,9})$", re.MULTILINE)
MAX_DEAD_PROCESSES = 5
NODE_ADDRESS = re.compile(r"\bip=(?P<ip>[^,)\s]{1,64})")


@dataclass(frozen=True)
class LogEvidence:
    """The end of a log, parsed for the rules."""

    # The output of each process; that of the driver is named DRIVER.
    outputs: Mapping[str, str]
    # Where rules for the trainer's last exception search: the driver's output from that exception on; of a wrapper
    # that leads to no other exception, the outputs of all processes.
    final_outputs: Mapping[str, str]
    errors: Sequence[PrintedError]
    settings: Mapping[str, str]

    def first_failure(self, rules: Sequence[Rule]) -> Failure | None:
        return next(filter(None, map(self.failure_by_rule, rules)), None)

    def failure_by_rule(self, rule: Rule) -> Failure | None:
        if rule.in_error:
            return next(filter(None, (self.failure_by_error(rule, error) for error in self.errors)), None)
        for process, text in (self.outputs if rule.anywhere else self.final_outputs).items():
            for lines, groups in rule_matches(rule, text):
                reason = rule.reason.format(**self.settings, **groups, error=lines[-1])
                # The driver's exception names the process itself.
                where = f" ({process})" if process and rule.anywhere else ""
                return Failure(rule.kind, reason + where, excerpt(process, lines), rule.remedy or REMEDIES[rule.kind])
        return None

    def failure_by_error(self, rule: Rule, error: PrintedError) -> Failure | None:
        # Skip Ray's own line about an exception of another process, which follows.
        match = None if REMOTE_ERROR.search(error.first_line) else re.search(rule.pattern, error.text, re.MULTILINE)
        if not match or (rule.frame and not any(re.search(rule.frame, line) for line in error.stack)):
            return None
        process = f" ({error.origin})" if error.origin else ""
        groups = {"error": error.line_at(match.start()), "match": match[0], "process": process}
        reason = rule.reason.format(**self.settings, **groups, **raise_location(error.stack))
        node = NODE_ADDRESS.search(error.origin)
        return Failure(
            rule.kind,
            reason,
            excerpt(error.process, [*error.stack, *error.text.split("\n")]),
            rule.remedy or REMEDIES[rule.kind],
            node["ip"] if node and rule.kind is FailureKind.GPU_FAULT else "",
        )


def classify(log: str, exit_code: int | None, steps: int = 0) -> Failure:
    """The failure of a job, with the reason from its log.

    log: the end of the driver's log. exit_code: that of the trainer, negative for a signal; None if its end was not
    observed. steps: how many steps the attempt did.
    """
    evidence = read_log(log, exit_code)
    if cause := evidence.first_failure(CAUSES):
        return cause
    if exit_code is None:
        lost = FailureKind.NODE_LOST
        return Failure(lost, "the driver's node was lost", last_lines(log), REMEDIES[lost])
    if consequence := evidence.first_failure(CONSEQUENCES):
        # The step decides whether a failed communication is retried.
        when = f", after step {steps}" if steps else ", before the first step"
        is_communication = consequence.kind is FailureKind.COMMUNICATION
        has_lost_peer = is_communication and LOST_PEER.search(consequence.reason)
        if has_lost_peer and (dead_worker := evidence.failure_by_rule(DEAD_WORKER)):
            return dead_worker
        return replace(consequence, reason=consequence.reason + when) if is_communication else consequence
    signal_number = -exit_code if exit_code < 0 else exit_code - 128
    if signal_number > 0:
        reason = f"the trainer was killed by {signal_name(signal_number)}"
        return Failure(FailureKind.KILLED, reason, last_lines(log), REMEDIES[FailureKind.KILLED])
    return unknown_failure(evidence, log, exit_code)


def read_log(log: str, exit_code: int | None) -> LogEvidence:
    outputs = output_by_process(log)
    matches = {name: (pattern.search(log), default) for name, (default, pattern) in SETTINGS.items()}
    settings = {name: match[1] if match else default for name, (match, default) in matches.items()}
    # A trainer that was killed or lost has no final exception.
    has_exception = exit_code is not None and 0 < exit_code <= 128
    final = outputs[DRIVER].rpartition(HYDRA_ERROR)[2] if has_exception else ""
    errors = printed_errors(final)
    if not any(map(is_wrapper, errors)) and TORCHRUN_FAILED not in final:
        return LogEvidence(outputs, {DRIVER: final}, errors, settings)
    all_errors = printed_errors(log)
    of_dead = errors_of_dead(errors, all_errors)
    if of_dead and not any(map(is_wrapper, of_dead[-1:])):
        return LogEvidence(outputs, {DRIVER: final}, [*errors, *of_dead], settings)
    if of_dead is None:
        return LogEvidence(outputs, {DRIVER: final}, errors, settings)
    return LogEvidence(outputs, {DRIVER: final, **outputs}, [*errors, *all_errors], settings)


def errors_of_dead(errors: Sequence[PrintedError], all_errors: Sequence[PrintedError]) -> list[PrintedError] | None:
    """The last error of each process that died, from the one that the driver names on; None if that one wrote none.

    A process may have handled its other exceptions; one that dies writes its reason last.
    """
    last = errors[-1:]
    last_errors: list[PrintedError] = []
    while last and (dead := DEAD_PROCESS.search(last[0].text)) and len(last_errors) < MAX_DEAD_PROCESSES:
        process_errors = [error for error in all_errors if f"pid={dead['pid']}" in re.split(r"[ ,]+", error.process)]
        last = process_errors[-1:]
        last_errors += last
        if not last:
            return last_errors or None
    return last_errors


def is_wrapper(error: PrintedError) -> bool:
    return bool(WRAPPER.search(error.first_line))


def unknown_failure(evidence: LogEvidence, log: str, exit_code: int) -> Failure:
    """A failure that no rule knows: the first exception of another process, or else the driver's last."""
    kind, reason = FailureKind.UNKNOWN, f"the trainer ended with exit code {exit_code}"
    causes = [error for error in evidence.errors if not is_wrapper(error)]
    if not causes:
        if any(ENGINE_START_FAILED in error.first_line for error in evidence.errors):
            kind, reason = FailureKind.ENGINE_LOST, "an inference engine ended as it started, and wrote no reason"
        elif evidence.errors:
            reason += ": another process failed, and the log does not tell why"
        return Failure(kind, reason, last_lines(evidence.final_outputs[DRIVER].strip() or log), REMEDIES[kind])
    error = next((error for error in causes if error.process != DRIVER), causes[-1])
    process = f" ({error.process})" if error.process else ""
    lines = excerpt(error.process, [*error.stack, *error.text.split("\n")])
    return Failure(kind, f"{reason}: {error.first_line}{process}", lines, REMEDIES[kind])


def excerpt(process: str, lines: Sequence[str]) -> tuple[str, ...]:
    prefix = f"({process}) " if process else ""
    return shorten([prefix + line for line in lines if not UNDERLINE.match(line)])


def raise_location(stack: Sequence[str]) -> dict[str, str]:
    """The file and line that raised an exception: the last frame in the user's code, or else the last of all."""
    frames = [frame for line in stack for frame in FRAME.findall(line)]
    file, line = ([frame for frame in frames if USER_CODE in frame[0]] or frames or [("?", "?")])[-1]
    return {"file": file, "line": line}


def rule_matches(rule: Rule, text: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    if not rule.frame:
        for match in re.finditer(rule.pattern, text, re.MULTILINE):
            yield match[0].split("\n"), group_values(match)
        return
    for stack, error in tracebacks(text):
        exception = re.match(rule.pattern, error)
        if exception and any(re.search(rule.frame, line) for line in stack):
            yield [*stack, error], {**group_values(exception), **raise_location(stack)}


def group_values(match: re.Match[str]) -> dict[str, str]:
    return {name: value or "" for name, value in match.groupdict().items()}


def signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
