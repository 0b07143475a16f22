# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The output of a job's processes, as the driver's log interleaves it."""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_LINES = 8
MAX_LENGTH = 400
# Longer lines lose their middle before they are read.
LINE_LENGTH = 4096
# More than a MiB of a real log has.
LINES = 50_000
# More processes than any job has on the nodes whose output its driver shows.
MAX_PROCESSES = 2000

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# The process that wrote a line, in the prefixes of Ray, torch and vLLM, which may follow one another.
ORIGIN = re.compile(
    r"\((?=[^()]{,200}\) )(?P<process>(?:(?:[^()]* )?pid=\d|raylet|autoscaler)[^()]*)\) |\[rank\d+\]: ?"
    r"|(?:ERROR|WARNING|INFO) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]+\] ?"
)
DRIVER = ""
FRAME = re.compile(r'^  File "(.+)", line (\d+)')
# The characters with which Python underlines the part of a line that raised an exception.
MARKS = re.compile(r"[\s~^]*$")


def output_by_process(log: str) -> dict[str, str]:
    """The output of each process, in its own order: a driver's log interleaves the lines of many."""
    outputs: dict[str, list[str]] = {DRIVER: []}
    for line in log.split("\n")[-LINES:]:
        process, text = process_and_text(line)
        if process not in outputs and len(outputs) >= MAX_PROCESSES:
            process = "other processes"
        outputs.setdefault(process, []).append(text)
    return {process: "\n".join(lines) + "\n" for process, lines in outputs.items()}


def process_and_text(line: str) -> tuple[str, str]:
    # A progress bar overwrites its line after a carriage return.
    text = ANSI.sub("", capped(line.rstrip().rpartition("\r")[2]))
    processes: list[str] = []
    while match := ORIGIN.match(text):
        processes += filter(None, [match["process"]])
        text = text[match.end() :]
    return ", ".join(processes) or DRIVER, text


def capped(line: str) -> str:
    half = LINE_LENGTH // 2
    return line if len(line) <= LINE_LENGTH else f"{line[:half]} … {line[-half:]}"


def tracebacks(text: str) -> Iterator[tuple[list[str], str]]:
    """The lines of each traceback from its first frame on, and its exception."""
    stack: list[str] = []
    for line in text.split("\n"):
        if line.startswith("  File ") or (stack and line.startswith((" ", "\t"))):
            stack.append(line)
            continue
        if stack and line:
            yield stack, line
        stack = []


def last_lines(log: str) -> tuple[str, ...]:
    lines = (line.rstrip().rpartition("\r")[2] for line in ANSI.sub("", log[-64 * 1024 :]).split("\n"))
    return shorten([line for line in lines if not MARKS.match(line)])


def shorten(lines: list[str]) -> tuple[str, ...]:
    return tuple(line[:MAX_LENGTH] for line in lines[-MAX_LINES:])


def one_line(text: str) -> str:
    """A reason as it is stored, and shown in a cell of a table; one that is too long ends after a word."""
    text = " ".join(text.split())
    if len(text) <= MAX_LENGTH:
        return text
    text = text[: MAX_LENGTH - 2]
    words = text.rpartition(" ")[0]
    return f"{words if len(words) > MAX_LENGTH // 2 else text} …"
