# SPDX-License-Identifier: Apache-2.0
"""Writes the driver's log live in parts, scans it for phases and errors, and records the end of an attempt."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import IO, TypeVar

from ..archive.archive import Archive
from ..archive.failures import Failure
from ..archive.job_warnings import ExceptionCount, LogSummary
from ..archive.status import Phase
from ..io.output import FRAME, one_line, process_and_text
from ..io.reading import UnreadableError, open_file, parse_json
from ..io.schema import MalformedError, json_text, parse

PART_BYTES = 64 << 20
# The parts kept: the first, which shows how the job began, and the newest of the others.
MAX_PARTS = 16
# The size of the end kept in memory, which the diagnosis of a failure reads.
TAIL_BYTES = 1 << 20


class DriverLog:
    """``driver.log``; a part that is full becomes ``driver.log.<n>``, the oldest with the smallest number.

    A shared root that cannot be written must end neither the trainer's output nor its launcher: the end of the log
    stays in memory, and what the file lacks is written as soon as it can be.
    """

    def __init__(self, path: Path, part_bytes: int = PART_BYTES) -> None:
        self.path = path
        self.part_bytes = part_bytes
        self.file = path.open("ab", buffering=0)
        # The thread that copies the output and that of the watch write.
        self.lock = threading.Lock()
        self.tail = bytearray()
        # The number of bytes at the end of the log that the file lacks, and the reason.
        self.unwritten_bytes = 0
        self.problem = ""

    def write(self, data: bytes) -> None:
        """Add to the log. Never raises OSError."""
        with self.lock:
            self.tail += data
            self.unwritten_bytes += len(data)
            # Bytes that the file still lacks when they leave the memory are lost.
            del self.tail[:-TAIL_BYTES]
            self._flush_pending()

    def flush_pending(self) -> int:
        """Write what the file lacks, if that is possible now; returns how many bytes it still lacks."""
        with self.lock:
            self._flush_pending()
            return self.unwritten_bytes

    def text(self) -> str:
        with self.lock:
            return self.tail.decode(errors="replace")

    def _flush_pending(self) -> None:
        try:
            lost = self.unwritten_bytes - len(self.tail)
            if lost > 0:
                self._append(f"\n[{lost} bytes of the log were lost: {self.problem}]\n".encode())
                self.unwritten_bytes -= lost
            while self.unwritten_bytes:
                # A file system with little space takes a part of it.
                self.unwritten_bytes -= self._append(bytes(self.tail[-self.unwritten_bytes :]))
        except OSError as error:
            self.problem = error.strerror or str(error)

    def _append(self, data: bytes) -> int:
        if self.file.tell() + len(data) > self.part_bytes and self.file.tell():
            self.rotate()
        written = self.file.write(data)
        if not written:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return written

    def rotate(self) -> None:
        numbers = sorted(int(part.suffix[1:]) for part in self.path.parent.glob(f"{self.path.name}.*[0-9]"))
        # An earlier rotation that could not open its next part has renamed the file already.
        with contextlib.suppress(FileNotFoundError):
            self.path.rename(self.path.with_name(f"{self.path.name}.{max(numbers, default=0) + 1}"))
        full, self.file = self.file, self.path.open("ab", buffering=0)
        full.close()
        for number in numbers[1 : max(1, len(numbers) - MAX_PARTS + 2)]:
            self.path.with_name(f"{self.path.name}.{number}").unlink()


class TruncatedCopy:
    """Writes the beginning of a log to another stream as well: whole lines, then one that says where the rest is."""

    def __init__(self, stream: IO[bytes], limit: int, full_log: Path) -> None:
        self.stream = stream
        self.bytes_left = limit
        self.full_log = full_log

    def write(self, data: bytes) -> None:
        if not self.bytes_left:
            return
        if len(data) <= self.bytes_left:
            self.bytes_left -= len(data)
        else:
            beginning = data[: self.bytes_left]
            data = beginning[: beginning.rfind(b"\n") + 1] or beginning + b"\n"
            data += f"[the rest of this log is in {self.full_log}]\n".encode()
            self.bytes_left = 0
        self.write_unlimited(data)

    def write_unlimited(self, data: bytes) -> None:
        """Write beyond the limit, for text that the archive cannot hold."""
        self.stream.write(data)
        self.stream.flush()


# Scans the log of a running trainer for its steps, its phase, errors that verl survives, cut prompts and lost engines.
# The lines are those of verl 0.9. What a job prints itself may look the same; at worst, a warning about it is wrong.

TOTAL_STEPS = re.compile(rb"[Tt]otal (?:training )?steps: (\d{1,12})\b")
# verl prints the number of steps before the first one; the log may grow to gigabytes after that.
MAX_START_BYTES = 4 << 20


def total_steps(archive: Archive) -> int | None:
    """The number of steps that the trainer will do, as it prints it; None if the log does not show it."""
    with contextlib.suppress(FileNotFoundError, UnreadableError):
        for part in list(archive.log_parts().values())[:1]:
            with archive.open(f"logs/{part.name}") as log:
                match = TOTAL_STEPS.search(log.read(MAX_START_BYTES))
                return int(match[1]) if match else None
    return None


def expected_steps(archive: Archive) -> int | None:
    """The trainer's number of steps, or the gate's number of steps that the data is enough for, if that is less."""
    total = total_steps(archive)
    with contextlib.suppress(UnreadableError):
        plan = archive.plan()
        if total is not None and plan and plan.steps is not None:
            return min(total, plan.steps)
    return total


# The maximum lines of a traceback, and the maximum number of processes with an unfinished one.
MAX_TRACEBACK_LINES, MAX_PROCESSES = 500, 1000
# The size kept of a line that has no end yet.
MAX_PARTIAL_LINE_BYTES = 1 << 20

# The line with which each phase begins, in the order of phases: of the launcher, of Ray, and of verl's
# trainer/ppo/v1/trainer_base.py, workers/rollout/vllm_rollout and trainer/sft_trainer_ray.py.
PHASE_MARKERS = (
    (Phase.TRAINER, b"MVP_PRECHECK_MARKER="),
    (Phase.RAY, b"Connecting to existing Ray cluster"),
    (Phase.DATA, b"Using dataset class: "),
    (Phase.DATA, b"dataset len: "),
    (Phase.WORKERS, b"worker group kwargs: "),
    (Phase.WEIGHTS, b"create worker group "),
    (Phase.WEIGHTS, b"Loading weights: "),
    (Phase.WEIGHTS, b"Loading checkpoint shards: "),
    (Phase.ENGINE, b"reward loop manager initialized"),
    (Phase.ENGINE, b"Initializing a V1 LLM engine"),
    (Phase.ROLLOUT, b"all initialize finished, ready to fit"),
    (Phase.STEP, b"Epoch 1/"),
)
PHASE_ORDER = list(Phase)
# verl/trainer/ppo/v1/agent_loop_tq.py: one line and one traceback for each sample, which is then left out.
FAILED_SAMPLE_TEXT = "Error in _run_prompt"
# verl/experimental/reward_loop/reward_manager/limited.py: the reward is 0 then.
FAILED_REWARD = re.compile(
    r"Reward computation (?:failed for data_source=.*?: (?P<what>.*)\. Response preview:"
    r"|timed out after (?P<after>\S+))"
)
# verl/experimental/agent_loop/agent_loop.py.
CUT_PROMPT = re.compile(r"Prompt of (?P<tokens>\d{1,9}) tokens exceeds rollout\.prompt_length=\d+; left-truncating")
# verl/utils/dataset/rl_dataset.py.
DATASET_ROWS = re.compile(r"(?P<filtered>filter )?dataset len: (?P<rows>\d{1,12})$")
SELECTED_ROWS = re.compile(r"selected (?P<rows>\d{1,12}) random samples out of")
# Ray shows a line that several processes print once, and then how often it was repeated.
REPEAT_COUNT = re.compile(r" \[repeated (?P<times>\d{1,9})x across cluster\]")
REWARD_FRAME = re.compile(r"/reward_loop/|/reward_manager/|/reward_score/|/trainer/ppo/reward\.py")
# The exception of a task or actor of Ray. That of the process itself follows.
RAY_TASK_ERROR = "ray.exceptions.RayTaskError"
# The actor of an inference server and its engine's processes: no other process prints what a model has generated.
ENGINE_PROCESS = re.compile(r"\w*Server\w* pid=")
# Messages with which an engine reports that it or one of its processes died: vLLM's v1/engine and v1/executor, SGLang's
# managers and watchdog; and the traceback of a vLLM worker that failed to load weights, whose answer verl waits for.
ENGINE_LOST = re.compile(
    r"(?:\[[^\]]{,80}\] )?(?:"
    r"(?:CPU )?EngineCore (?:encountered a fatal error|failed to start)\b"
    r"|(?:Engine core proc|Worker proc|RayWorkerProc) .{,200}\bdied unexpectedly\b|RuntimeError: Executor failed\b"
    r"|AsyncLLM output_handler failed\b|\S*\bEngineDeadError: "
    r"|Rank \d+ scheduler is dead\b|\w+ hit an exception: |Subprocess \S+ \(pid=\d+\) crashed\b"
    r"|(?:SIGQUIT received|Received sigquit)\b.* child (?:process|failed)\b"
    r')|  File "[^"]*/bucketed_weight_transfer\.py", line \d'
)
# The messages that are followed by a traceback with the reason.
REASON_FOLLOWS = re.compile(r"  File |.*(?:encountered a fatal error|failed to start|output_handler failed)\b")
EXCEPTION_LINE = re.compile(r"[\w.]+: \S")
# An engine that starts takes the place of one that ended.
ENGINE_STARTS = "Initializing a V1 LLM engine"
RELEVANT_MARKERS = (
    *(b"Server", FAILED_SAMPLE_TEXT.encode(), b"Reward computation ", b"left-truncating"),
    *(b"dataset len: ", b"random samples out of"),
    *(marker for _phase, marker in PHASE_MARKERS),
)


class SampleTraceback:
    """The traceback of a failed sample, as far as it was printed. count: how many samples it stands for."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.lines = 0
        self.frame = ""
        self.in_reward = False


class LogScan:
    """Scans the trainer's output, fed in pieces, for phases, failed samples and lost engines."""

    def __init__(self) -> None:
        self.phase: Phase | None = None
        self.summary = LogSummary()
        # The message of an inference engine that has ended, and its process.
        self.lost_engine = ""
        # The process whose reason follows in the log.
        self.process_awaiting_reason = ""
        self.partial_line = b""
        # The tracebacks that have no end yet, by process.
        self.open_tracebacks: dict[str, SampleTraceback] = {}
        # The number of rows of the dataset that a process read last.
        self.last_dataset_rows: dict[str, int] = {}

    def feed(self, data: bytes) -> None:
        """Read the next piece. Only pieces with lines of interest are read closely: a log may have gigabytes."""
        whole, end, rest = data.rpartition(b"\n")
        lines = self.partial_line + whole + end if end else b""
        self.partial_line = (rest if end else self.partial_line + rest)[-MAX_PARTIAL_LINE_BYTES:]
        if not self.open_tracebacks and not any(marker in lines for marker in RELEVANT_MARKERS):
            return
        for line in lines.splitlines():
            if self.open_tracebacks or any(marker in line for marker in RELEVANT_MARKERS):
                self.read_line(line)

    def read_line(self, line: bytes) -> None:
        for phase, marker in PHASE_MARKERS:
            if marker in line and (self.phase is None or PHASE_ORDER.index(phase) > PHASE_ORDER.index(self.phase)):
                self.phase = phase
        process, text = process_and_text(line.decode(errors="replace"))
        if ENGINE_PROCESS.match(process):
            self.read_engine(process, text)
        repeated = REPEAT_COUNT.search(text)
        times = int(repeated["times"]) if repeated else 1
        if FAILED_SAMPLE_TEXT in text:
            self.count_failed_sample(process)
            if len(self.open_tracebacks) < MAX_PROCESSES:
                self.open_tracebacks[process] = SampleTraceback(times)
        elif process in self.open_tracebacks:
            self.read_traceback(process, REPEAT_COUNT.sub("", text))
        else:
            self.read_plain_line(process, text, times)

    def read_engine(self, process: str, text: str) -> None:
        is_reason = self.process_awaiting_reason == process and EXCEPTION_LINE.match(text)
        reports_loss = is_reason if self.lost_engine else ENGINE_LOST.match(text)
        if text.startswith(ENGINE_STARTS):
            self.lost_engine = ""
        elif reports_loss:
            self.process_awaiting_reason = process if REASON_FOLLOWS.match(text) else ""
            self.lost_engine = one_line(f"{text} ({process})")

    def read_plain_line(self, process: str, text: str, times: int) -> None:
        summary = self.summary
        if cut := CUT_PROMPT.search(text):
            self.summary = replace(summary, cut=summary.cut + times, longest=max(summary.longest, int(cut["tokens"])))
        elif failed := FAILED_REWARD.search(text):
            self.count_exception(True, times, failed["what"] or f"it timed out after {failed['after']}")
        elif selected := SELECTED_ROWS.search(text):
            self.last_dataset_rows[process] = int(selected["rows"])
        elif rows := DATASET_ROWS.search(text):
            if rows["filtered"]:
                before = self.last_dataset_rows.pop(process, 0)
                dropped = max(0, before - int(rows["rows"]))
                self.summary = replace(summary, dropped=summary.dropped + dropped, rows=summary.rows + before)
            elif len(self.last_dataset_rows) < MAX_PROCESSES:
                self.last_dataset_rows[process] = int(rows["rows"])

    def read_traceback(self, process: str, text: str) -> None:
        traceback = self.open_tracebacks[process]
        traceback.lines += 1
        if frame := FRAME.match(text):
            traceback.frame = f"{frame[1]}, line {frame[2]}"
            traceback.in_reward = traceback.in_reward or bool(REWARD_FRAME.search(frame[1]))
        elif traceback.frame and text and not text.startswith((" ", "\t", RAY_TASK_ERROR)):
            self.count_failed_sample(process, f"{text} ({traceback.frame})")
        elif traceback.lines > MAX_TRACEBACK_LINES:
            self.count_failed_sample(process)

    def count_failed_sample(self, process: str, cause: str = "") -> None:
        """Count a failed sample, after its traceback."""
        traceback = self.open_tracebacks.pop(process, None)
        if traceback:
            # Lines that Ray counts as repeated have no traceback; their cause is that of the others.
            in_reward = traceback.in_reward or (not cause and self.summary.reward.count > 0)
            self.count_exception(in_reward, traceback.count, cause)

    def count_exception(self, in_reward: bool, count: int, cause: str) -> None:
        earlier = self.summary.reward if in_reward else self.summary.rollout
        total = ExceptionCount(earlier.count + count, earlier.cause or cause)
        summary = self.summary
        self.summary = replace(summary, reward=total) if in_reward else replace(summary, rollout=total)

    def finish(self) -> None:
        self.feed(b"\n")
        for process in list(self.open_tracebacks):
            self.count_failed_sample(process)


class LogFollower:
    """Reads what is appended to the driver's log, across its rotated parts."""

    def __init__(self, archive: Archive) -> None:
        """Begins at the end of the log: all before it is of an earlier attempt."""
        self.archive = archive
        self.part, self.position = 0, 0
        with contextlib.suppress(FileNotFoundError, UnreadableError):
            for self.part, path in archive.log_parts().items():
                self.position = path.stat().st_size

    def read(self, size: int) -> bytes:
        """At most `size` bytes; none if nothing was appended. Raises FileNotFoundError, UnreadableError or OSError."""
        for number, path in self.archive.log_parts().items():
            if number >= self.part:
                position = self.position if number == self.part else 0
                with open_file(path) as file:
                    file.seek(position)
                    data = file.read(size)
                if data:
                    self.part, self.position = number, position + len(data)
                    return data
        return b""


# Records the end of an attempt, even while the shared root is full or read-only.

# The time limit for recording the end of an attempt, whose trainer has already ended.
RECORD_TIMEOUT_SECONDS = 300.0
# The time limit after a stop request, before Ray kills the launcher.
STOP_RECORD_TIMEOUT_SECONDS = 5.0
RETRY_INTERVAL_SECONDS = 0.5
# Begins the line in Ray's own log with the end of an attempt that the archive does not have.
END_PREFIX = "ARGUS_VERL_END="
# Ray shows the last 10 lines of a log; splitlines may make more of them, as it also splits at carriage returns.
MAX_MESSAGE_LINES = 20
Value = TypeVar("Value")


def retry_write(work: Callable[[], Value], stopped: Callable[[], bool], clock: ModuleType = time) -> Value:
    """The result of work that writes to the archive, tried again for RECORD_TIMEOUT_SECONDS; raises its last error.

    stopped: whether this process is asked to end.
    """
    until = clock.monotonic() + RECORD_TIMEOUT_SECONDS
    while True:
        try:
            return work()
        except (OSError, UnreadableError) as error:
            # A job may have put something else in place of a file, which will not change.
            if isinstance(error, UnreadableError) and not error.is_transient:
                raise
            if stopped():
                until = min(until, clock.monotonic() + STOP_RECORD_TIMEOUT_SECONDS)
            if clock.monotonic() >= until:
                raise
        # sleep() resumes after a signal (PEP 475).
        clock.sleep(RETRY_INTERVAL_SECONDS)


def format_end_line(failure: Failure | None) -> str:
    return END_PREFIX + json_text(failure)


def parse_end_line(message: str) -> Failure | None:
    """The failure that a launcher told in the end of Ray's log, if it did; a job can write such a line as well."""
    for line in reversed(message.splitlines()[-MAX_MESSAGE_LINES:]):
        if line.startswith(END_PREFIX):
            try:
                return parse(Failure, parse_json(line.removeprefix(END_PREFIX), "the end"))
            except (MalformedError, UnreadableError):
                return None
    return None
