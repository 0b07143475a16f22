# SPDX-License-Identifier: Apache-2.0
"""Separates the output of a job's processes, which the driver's log interleaves, and finds exceptions in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

MAX_EXCERPT_LINES = 8
MAX_REASON_CHARS = 400
# Longer lines lose their middle before they are parsed.
MAX_LINE_CHARS = 4096
# The number of last lines that are read; a MiB of a real log has fewer.
MAX_LOG_LINES = 50_000
# The number of processes whose output is kept apart; no job has more.
MAX_PROCESSES = 2000

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# A progress bar of the driver, after which Ray has printed a line of another process.
PROGRESS_BAR = re.compile(r"^[^|\x1b]*%\|[^\x1b]*\](?=\x1b\[\d+m\()")
# A prefix of Ray, torch, vLLM or SGLang that names the process of a line; a line may have several.
ORIGIN = re.compile(
    r"\((?=[^()]{,200}\) )(?P<process>(?:(?:[^()]* )?pid=\d|raylet|autoscaler|EngineCore|Worker)[^()]*)\) "
    r"|\[rank\d+\]: ?|(?:ERROR|WARNING|INFO) (?:\d\d-\d\d \d\d:\d\d:\d\d )?\[?[\w./]{1,99}:\d+\] ?"
    r"|\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[^\] ]{,30}(?: [^\]]{,30})?\] |\d{4}-\d\d-\d\dT[\d:.]{8,18}Z "
)
DRIVER = ""
USER_CODE = "/user/code/"
FRAME = re.compile(r'^ *File "(.+)", line (\d+)')
# The beginning of an error without a traceback: of a crash, or an exception of which only the last line was printed.
CRASH_LINE = re.compile(
    r"terminate called|thread '[^']{,99}' panicked|.{,200}?\b(?:Unhandled exception|what\(\)): |Fatal |libgomp: "
    r"|OpenBLAS |Job supervisor actor died|[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)\b|\S{1,99}: ERROR "
)
# Lines that Python writes for a process that called abort(), after the lines with the reason.
DUMP = re.compile(r"Fatal Python error: Aborted|Extension modules: ")
# The exception of a task or actor of Ray, with the process that raised it. Its own traceback follows.
REMOTE_ERROR = re.compile(r"\bray::.{1,300}?\((?P<process>pid=\d+(?:, ip=[^,)\s]{1,64})?)")
# A line that is no longer part of an exception's message; the last alternative is a frame of native code.
MESSAGE_END = re.compile(
    r"Traceback |The above exception|During handling|Set the environment variable HYDRA|step:\d"
    r"|\S+\([^()]*\+0x[0-9a-f]+\) \[0x"
)
MAX_MESSAGE_LINES = 16
# Of more exceptions, only the first and the last are kept.
MAX_ERRORS = 1000
# The characters with which Python underlines the part of a line that raised an exception.
UNDERLINE = re.compile(r"[\s~^]*$")


@dataclass(frozen=True)
class PrintedError:
    process: str
    # The process that raised it, if the log tells; another one than `process` if Ray has copied the exception.
    origin: str
    stack: tuple[str, ...]
    text: str

    @property
    def first_line(self) -> str:
        return self.text.partition("\n")[0]

    def line_at(self, position: int) -> str:
        """The line of the message that has this position in `text`, after the name of the exception."""
        index = self.text[:position].count("\n")
        name = self.first_line.partition(":")[0] + ": " if index else ""
        return name + self.text.split("\n")[index].strip()


def printed_errors(log: str) -> list[PrintedError]:
    """The exceptions in a log, in the order in which their messages were printed, at most MAX_ERRORS."""
    errors: list[PrintedError] = []
    # By process: the lines of a traceback whose exception has not come yet.
    stacks: dict[str, list[str]] = {}
    # By process: the index in `errors` of the exception whose message may go on.
    current: dict[str, int] = {}
    # By process: the process from which Ray has copied the exceptions that follow.
    origins: dict[str, str] = {}
    ignored: set[str] = set()
    for line in log.split("\n")[-MAX_LOG_LINES:]:
        process, text = process_and_text(line)
        stack = stacks.setdefault(process, [])
        if FRAME.match(text) or (stack and text.startswith((" ", "\t"))):
            stack.append(text)
            current.pop(process, None)
        elif text and (stack or CRASH_LINE.match(text)):
            before = errors[current[process]].stack if process in current else ()
            if process in ignored or DUMP.match(text):
                ignored.discard(process)
                stacks[process] = []
                continue
            error = PrintedError(process, origins.get(process, process), tuple(stack) or before, text)
            current[process], stacks[process] = len(errors), []
            errors.append(error)
            if remote := REMOTE_ERROR.search(text):
                origins[process] = remote["process"]
        elif text.startswith("Exception ignored"):
            # Python prints this before errors of destructors, which it ignores.
            ignored.add(process)
        elif process in current:
            error = errors[current[process]]
            if not text or MESSAGE_END.match(text) or error.text.count("\n") >= MAX_MESSAGE_LINES:
                del current[process]
            else:
                errors[current[process]] = replace(error, text=f"{error.text}\n{text}")
    return errors if len(errors) <= MAX_ERRORS else errors[: MAX_ERRORS // 2] + errors[-MAX_ERRORS // 2 :]


def output_by_process(log: str) -> dict[str, str]:
    """The output of each process in a driver's log, which interleaves the lines of all."""
    outputs: dict[str, list[str]] = {DRIVER: []}
    for line in log.split("\n")[-MAX_LOG_LINES:]:
        process, text = process_and_text(line)
        if process not in outputs and len(outputs) >= MAX_PROCESSES:
            process = "other processes"
        outputs.setdefault(process, []).append(text)
    return {process: "\n".join(lines) + "\n" for process, lines in outputs.items()}


def process_and_text(line: str) -> tuple[str, str]:
    """The processes that the prefixes of a line name, or DRIVER; and the line without prefixes and colours."""
    # A progress bar overwrites its line after a carriage return.
    text = ANSI.sub("", PROGRESS_BAR.sub("", cap_line(line.rstrip().rpartition("\r")[2])))
    processes: list[str] = []
    while match := ORIGIN.match(text):
        processes += [name for name in (match["process"],) if name and name not in processes]
        text = text[match.end() :]
    return ", ".join(processes) or DRIVER, text


def cap_line(line: str) -> str:
    half = MAX_LINE_CHARS // 2
    return line if len(line) <= MAX_LINE_CHARS else f"{line[:half]} … {line[-half:]}"


def tracebacks(text: str) -> Iterator[tuple[list[str], str]]:
    """The lines of each traceback from its first frame on, and its exception."""
    stack: list[str] = []
    for line in text.split("\n"):
        if FRAME.match(line) or (stack and line.startswith((" ", "\t"))):
            stack.append(line)
            continue
        if stack and line:
            yield stack, line
        stack = []


def last_lines(log: str) -> tuple[str, ...]:
    """The last lines of a log as an excerpt, without empty lines and those with which Python underlines code."""
    lines = (line.rstrip().rpartition("\r")[2] for line in ANSI.sub("", log[-64 * 1024 :]).split("\n"))
    return shorten([line for line in lines if not UNDERLINE.match(line)])


def shorten(lines: list[str]) -> tuple[str, ...]:
    return tuple(line[:MAX_REASON_CHARS] for line in lines[-MAX_EXCERPT_LINES:])


def one_line(text: str) -> str:
    """A reason in one line, as a status stores it and a table shows it. A reason that is too long ends after a word."""
    text = " ".join(text.split())
    if len(text) <= MAX_REASON_CHARS:
        return text
    text = text[: MAX_REASON_CHARS - 2]
    words = text.rpartition(" ")[0]
    return f"{words if len(words) > MAX_REASON_CHARS // 2 else text} …"
