# SPDX-License-Identifier: Apache-2.0
"""Reads the driver's log of a running trainer: `total_steps` its number of steps, `LogScan` its phase, failed samples,
cut prompts and lost engines; `ProgressScan` whether it goes on; `LogFollower` reads what is appended to the log.

The lines are those of verl 0.9. What a job prints itself may look the same; at worst, a warning about it is wrong.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace

from ..archive.archive import Archive
from ..archive.status import Phase
from ..archive.warning_inputs import ExceptionCount, LogSummary
from ..io.output import FRAME, one_line, process_and_text
from ..io.reading import UnreadableError, open_file

# The number of steps, as trainers print it before the first one. The log may grow to gigabytes after that.
TOTAL_STEPS = re.compile(rb"[Tt]otal (?:training )?steps: (\d{1,12})\b")
MAX_START_BYTES = 4 << 20
# The most lines of a traceback, and the most processes with an unfinished one.
MAX_TRACEBACK_LINES, MAX_PROCESSES = 500, 1000
# The size kept of a line that has no end yet.
MAX_PARTIAL_LINE_BYTES = 1 << 20

# Phases: the lines with which they begin, in their order. The launcher, Ray, and verl's trainer/ppo/v1/trainer_base.py,
# workers/rollout/vllm_rollout and trainer/sft_trainer_ray.py print them.
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

# Samples: verl/trainer/ppo/v1/agent_loop_tq.py prints this line and a traceback for each sample that it leaves out.
FAILED_SAMPLE_TEXT = "Error in _run_prompt"
# verl/experimental/reward_loop/reward_manager/limited.py prints this for a sample to which it gives a reward of 0.
FAILED_REWARD = re.compile(
    r"Reward computation (?:failed for data_source=.*?: (?P<what>.*)\. Response preview:"
    r"|timed out after (?P<after>\S+))"
)
# verl/experimental/agent_loop/agent_loop.py prints this for a prompt that it has cut.
CUT_PROMPT = re.compile(r"Prompt of (?P<tokens>\d{1,9}) tokens exceeds rollout\.prompt_length=\d+; left-truncating")
# Files of verl's code of rewards, in the frames of a traceback.
REWARD_FRAME = re.compile(r"/reward_loop/|/reward_manager/|/reward_score/|/trainer/ppo/reward\.py")
# The exception of a task or actor of Ray. The exception of the process itself follows.
RAY_TASK_ERROR = "ray.exceptions.RayTaskError"
# Ray shows a line that several processes print once, and then how often it was repeated.
REPEAT_COUNT = re.compile(r" \[repeated (?P<times>\d{1,9})x across cluster\]")

# Datasets: verl/utils/dataset/rl_dataset.py prints how many rows it has read, selected, and left after the filter.
DATASET_ROWS = re.compile(r"(?P<filtered>filter )?dataset len: (?P<rows>\d{1,12})$")
SELECTED_ROWS = re.compile(r"selected (?P<rows>\d{1,12}) random samples out of")

# Engines: their messages count only in the output of the actor of an inference server and of its engine's processes.
# Other processes print what a model has generated, which may have the same words.
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
# The messages that a traceback follows; its last line has the reason.
REASON_FOLLOWS = re.compile(r"  File |.*(?:encountered a fatal error|failed to start|output_handler failed)\b")
EXCEPTION_LINE = re.compile(r"[\w.]+: \S")
# An engine that starts takes the place of one that ended.
ENGINE_STARTS = "Initializing a V1 LLM engine"

# Reports that Ray and TransferQueue print at intervals, whatever a trainer does.
PERIODIC_LINE = re.compile(
    rb"\((?:raylet|autoscaler)\b|\[Performance\] Total |Time range: last [\d.]+ minutes|Per-operation statistics: "
)
# Counts that verl prints every minute while it waits for samples: trainer/ppo/v1/replay_buffer.py and
# experimental/fully_async_policy/fully_async_rollouter.py.
COUNTS = re.compile(rb"(?P<name>pending: |'(?:monitor|count|static)/[\w/]+': )(?P<values>\d.*)")

# LogScan reads only lines with one of these, and tracebacks. b"Server" is in the names of ENGINE_PROCESS.
SAMPLE_MARKERS = (FAILED_SAMPLE_TEXT.encode(), b"Reward computation ", b"left-truncating")
DATASET_MARKERS = (b"dataset len: ", b"random samples out of")
RELEVANT_MARKERS = (b"Server", *SAMPLE_MARKERS, *DATASET_MARKERS, *(marker for _phase, marker in PHASE_MARKERS))


def total_steps(archive: Archive) -> int | None:
    """The number of steps that the trainer announces in its log; None if the log does not show it."""
    with contextlib.suppress(FileNotFoundError, UnreadableError):
        for part in list(archive.log_parts().values())[:1]:
            with archive.open(f"logs/{part.name}") as log:
                match = TOTAL_STEPS.search(log.read(MAX_START_BYTES))
                return int(match[1]) if match else None
    return None


def expected_steps(archive: Archive) -> int | None:
    """The number of steps that the trainer announces, or that for which the data suffices, if it is less."""
    total = total_steps(archive)
    with contextlib.suppress(UnreadableError):
        plan = archive.plan()
        if total is not None and plan and plan.steps is not None:
            return min(total, plan.steps)
    return total


class ProgressScan:
    """Tells what a trainer prints as it goes on from what is printed at intervals while it hangs."""

    def __init__(self) -> None:
        # The last values of each name of COUNTS.
        self.counts: dict[bytes, bytes] = {}

    def shows_progress(self, output: bytes) -> bool:
        return any(map(self.line_shows_progress, output.splitlines()))

    def line_shows_progress(self, line: bytes) -> bool:
        if not (counts := COUNTS.search(line)):
            return bool(line.strip()) and not PERIODIC_LINE.search(line)
        last, self.counts[counts["name"]] = self.counts.get(counts["name"]), counts["values"]
        return last != counts["values"]


class OpenTraceback:
    """The lines read so far of the unfinished traceback of sample_count failed samples."""

    def __init__(self, sample_count: int) -> None:
        self.sample_count = sample_count
        self.line_count = 0
        self.last_frame = ""
        self.has_reward_frame = False


class LogScan:
    """Scans the trainer's output for phase, summary and lost_engine. Call feed() with each piece, then finish()."""

    def __init__(self) -> None:
        self.phase: Phase | None = None
        self.summary = LogSummary()
        # The message of an inference engine that has ended, with its process, or "". Watch clears it if steps go on.
        self.lost_engine = ""
        # The process whose traceback with the reason follows in the log; "" without one.
        self.process_awaiting_reason = ""
        self.partial_line = b""
        # The unfinished tracebacks, by process.
        self.open_tracebacks: dict[str, OpenTraceback] = {}
        # The rows of the dataset that each process read last.
        self.last_dataset_rows: dict[str, int] = {}

    def feed(self, data: bytes) -> None:
        """Read the next piece. A log may have gigabytes: only pieces with relevant lines are split into lines."""
        whole, end, rest = data.rpartition(b"\n")
        lines = self.partial_line + whole + end if end else b""
        self.partial_line = (rest if end else self.partial_line + rest)[-MAX_PARTIAL_LINE_BYTES:]
        if not self.open_tracebacks and not any(marker in lines for marker in RELEVANT_MARKERS):
            return
        for line in lines.splitlines():
            if self.open_tracebacks or any(marker in line for marker in RELEVANT_MARKERS):
                self.read_line(line)

    def finish(self) -> None:
        self.feed(b"\n")
        for process in list(self.open_tracebacks):
            self.count_failed_sample(process)

    def read_line(self, line: bytes) -> None:
        for phase, marker in PHASE_MARKERS:
            if marker in line and (self.phase is None or PHASE_ORDER.index(phase) > PHASE_ORDER.index(self.phase)):
                self.phase = phase
        process, text = process_and_text(line.decode(errors="replace"))
        if ENGINE_PROCESS.match(process):
            self.read_engine_line(process, text)
        repeated = REPEAT_COUNT.search(text)
        times = int(repeated["times"]) if repeated else 1
        if FAILED_SAMPLE_TEXT in text:
            self.count_failed_sample(process)
            if len(self.open_tracebacks) < MAX_PROCESSES:
                self.open_tracebacks[process] = OpenTraceback(times)
        elif process in self.open_tracebacks:
            self.read_traceback_line(process, REPEAT_COUNT.sub("", text))
        else:
            self.read_other_line(process, text, times)

    def read_engine_line(self, process: str, text: str) -> None:
        is_reason = self.process_awaiting_reason == process and EXCEPTION_LINE.match(text)
        reports_loss = is_reason if self.lost_engine else ENGINE_LOST.match(text)
        if text.startswith(ENGINE_STARTS):
            self.lost_engine = ""
        elif reports_loss:
            self.process_awaiting_reason = process if REASON_FOLLOWS.match(text) else ""
            self.lost_engine = one_line(f"{text} ({process})")

    def read_traceback_line(self, process: str, text: str) -> None:
        traceback = self.open_tracebacks[process]
        traceback.line_count += 1
        if frame := FRAME.match(text):
            traceback.last_frame = f"{frame[1]}, line {frame[2]}"
            traceback.has_reward_frame = traceback.has_reward_frame or bool(REWARD_FRAME.search(frame[1]))
        elif traceback.last_frame and text and not text.startswith((" ", "\t", RAY_TASK_ERROR)):
            self.count_failed_sample(process, f"{text} ({traceback.last_frame})")
        elif traceback.line_count > MAX_TRACEBACK_LINES:
            self.count_failed_sample(process)

    def read_other_line(self, process: str, text: str, times: int) -> None:
        summary = self.summary
        if cut := CUT_PROMPT.search(text):
            tokens = max(summary.longest_cut_prompt_tokens, int(cut["tokens"]))
            cut_prompt_count = summary.cut_prompt_count + times
            self.summary = replace(summary, cut_prompt_count=cut_prompt_count, longest_cut_prompt_tokens=tokens)
        elif failed := FAILED_REWARD.search(text):
            self.count_exceptions(times, failed["what"] or f"it timed out after {failed['after']}", in_reward=True)
        elif selected := SELECTED_ROWS.search(text):
            self.last_dataset_rows[process] = int(selected["rows"])
        elif rows := DATASET_ROWS.search(text):
            if rows["filtered"]:
                before = self.last_dataset_rows.pop(process, 0)
                dropped = summary.dropped_row_count + max(0, before - int(rows["rows"]))
                self.summary = replace(summary, dropped_row_count=dropped, row_count=summary.row_count + before)
            elif len(self.last_dataset_rows) < MAX_PROCESSES:
                self.last_dataset_rows[process] = int(rows["rows"])

    def count_failed_sample(self, process: str, cause: str = "") -> None:
        """Count the failed sample whose traceback a process was printing, if there is one."""
        traceback = self.open_tracebacks.pop(process, None)
        if traceback:
            # Lines that Ray counts as repeated have no traceback. Their cause is that of the others.
            is_repeat = not cause and self.summary.reward_exceptions.count > 0
            self.count_exceptions(traceback.sample_count, cause, in_reward=traceback.has_reward_frame or is_repeat)

    def count_exceptions(self, count: int, cause: str, *, in_reward: bool) -> None:
        summary = self.summary
        earlier = summary.reward_exceptions if in_reward else summary.rollout_exceptions
        total = ExceptionCount(earlier.count + count, earlier.cause or cause)
        changed = replace(summary, reward_exceptions=total) if in_reward else replace(summary, rollout_exceptions=total)
        self.summary = changed


class LogFollower:
    """Reads what is appended to the driver's log, across its rotated parts."""

    def __init__(self, archive: Archive) -> None:
        """Begins at the end of the log: everything before it is of an earlier attempt."""
        self.archive = archive
        self.part_number, self.position = 0, 0
        with contextlib.suppress(FileNotFoundError, UnreadableError):
            for self.part_number, path in archive.log_parts().items():
                self.position = path.stat().st_size

    def read(self, size: int) -> bytes:
        """At most `size` bytes; b"" if nothing was appended. Raises FileNotFoundError, UnreadableError or OSError."""
        for number, path in self.archive.log_parts().items():
            if number >= self.part_number:
                position = self.position if number == self.part_number else 0
                with open_file(path) as file:
                    file.seek(position)
                    data = file.read(size)
                if data:
                    self.part_number, self.position = number, position + len(data)
                    return data
        return b""
