# SPDX-License-Identifier: Apache-2.0
"""Separates the output of a job's processes, which the driver's log interleaves, and finds its exceptions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

MAX_EXCERPT_LINES = 8
MAX_REASON_CHARS = 400
# Longer lines lose their middle before they are read.
MAX_LINE_CHARS = 4096
# The maximum number of lines; a MiB of a real log has fewer.
MAX_LOG_LINES = 50_000
# More processes than any job has on the nodes whose output its driver shows.
MAX_PROCESSES = 2000

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# A progress bar of the driver, and on the same line what Ray prints of another process.
PROGRESS_BAR = re.compile(r"^[^|\x1b]*%\|[^\x1b]*\](?=\x1b\[\d+m\()")
# The process that wrote a line, in the prefixes of Ray, torch, vLLM and SGLang, which may follow one another.
ORIGIN = re.compile(
    r"\((?=[^()]{,200}\) )(?P<process>(?:(?:[^()]* )?pid=\d|raylet|autoscaler|EngineCore|Worker)[^()]*)\) "
    r"|\[rank\d+\]: ?|(?:ERROR|WARNING|INFO) (?:\d\d-\d\d \d\d:\d\d:\d\d )?\[?[\w./]{1,99}:\d+\] ?"
    r"|\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[^\] ]{,30}(?: [^\]]{,30})?\] |\d{4}-\d\d-\d\dT[\d:.]{8,18}Z "
)
DRIVER = ""
USER_CODE = "/user/code/"
FRAME = re.compile(r'^ *File "(.+)", line (\d+)')
# The words of a process that crashes without a traceback, and exceptions of which only the last line was printed.
CRASH_LINE = re.compile(
    r"terminate called|thread '[^']{,99}' panicked|.{,200}?\b(?:Unhandled exception|what\(\)): |Fatal |libgomp: "
    r"|OpenBLAS |Job supervisor actor died|[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)\b|\S{1,99}: ERROR "
)
# Python writes these lines after the reason, for a process that called abort().
DUMP = re.compile(r"Fatal Python error: Aborted|Extension modules: ")
# The exception of a task or actor of Ray, with the process that raised it. Its own traceback follows.
REMOTE_ERROR = re.compile(r"\bray::.{1,300}?\((?P<process>pid=\d+(?:, ip=[^,)\s]{1,64})?)")
# Lines that end an exception's message. The last ones are frames of native code.
MESSAGE_END = re.compile(
    r"Traceback |The above exception|During handling|Set the environment variable HYDRA|step:\d"
    r"|\S+\([^()]*\+0x[0-9a-f]+\) \[0x"
)
MAX_MESSAGE_LINES = 16
MAX_ERRORS = 1000
# The characters with which Python underlines the part of a line that raised an exception.
UNDERLINE = re.compile(r"[\s~^]*$")


@dataclass(frozen=True)
class PrintedError:
    """An exception as a process printed it: its traceback from the first frame on, and its message.

    process: whose output has it. origin: where it was raised, as far as the log tells; the same unless Ray copied it.
    """

    process: str
    origin: str
    stack: tuple[str, ...]
    text: str

    @property
    def first_line(self) -> str:
        return self.text.partition("\n")[0]

    def line_at(self, position: int) -> str:
        """The line of the message at this position, behind the exception's name."""
        before = self.text[:position].count("\n")
        name = self.first_line.partition(":")[0] + ": " if before else ""
        return name + self.text.split("\n")[before].strip()


def printed_errors(log: str) -> list[PrintedError]:
    """The exceptions in a log, in the order in which their messages were printed; of very many the first and last."""
    errors: list[PrintedError] = []
    stacks: dict[str, list[str]] = {}
    # The number of the exception whose message a process prints.
    current: dict[str, int] = {}
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
            # Python prints these errors when it cannot free an object at its end.
            ignored.add(process)
        elif process in current:
            error = errors[current[process]]
            if not text or MESSAGE_END.match(text) or error.text.count("\n") >= MAX_MESSAGE_LINES:
                del current[process]
            else:
                errors[current[process]] = replace(error, text=f"{error.text}\n{text}")
    return errors if len(errors) <= MAX_ERRORS else errors[: MAX_ERRORS // 2] + errors[-MAX_ERRORS // 2 :]


def output_by_process(log: str) -> dict[str, str]:
    """The output of each process, in its own order: a driver's log interleaves the lines of many."""
    outputs: dict[str, list[str]] = {DRIVER: []}
    for line in log.split("\n")[-MAX_LOG_LINES:]:
        process, text = process_and_text(line)
        if process not in outputs and len(outputs) >= MAX_PROCESSES:
            process = "other processes"
        outputs.setdefault(process, []).append(text)
    return {process: "\n".join(lines) + "\n" for process, lines in outputs.items()}


def process_and_text(line: str) -> tuple[str, str]:
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
    lines = (line.rstrip().rpartition("\r")[2] for line in ANSI.sub("", log[-64 * 1024 :]).split("\n"))
    return shorten([line for line in lines if not UNDERLINE.match(line)])


def shorten(lines: list[str]) -> tuple[str, ...]:
    return tuple(line[:MAX_REASON_CHARS] for line in lines[-MAX_EXCERPT_LINES:])


def one_line(text: str) -> str:
    """A reason as it is stored, and shown in a cell of a table; one that is too long ends after a word."""
    text = " ".join(text.split())
    if len(text) <= MAX_REASON_CHARS:
        return text
    text = text[: MAX_REASON_CHARS - 2]
    words = text.rpartition(" ")[0]
    return f"{words if len(words) > MAX_REASON_CHARS // 2 else text} …"
