# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes through the input and output of commands in a node: answers, which are limited, and files."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

from ansible.errors import AnsibleFileNotFound
from ansible.module_utils.common.text.converters import to_text
from ansible.module_utils.json_utils import _filter_non_json_lines
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import one_line, printable

# What comes out of a node, where jobs can change what a module answers: limited, and without what Ansible acts on.

# A part of a file that is copied has 8 MiB, and Ansible needs six times the size of an answer.
MAX_OUTPUT_BYTES, MAX_ERROR_BYTES = 16 << 20, 1 << 20
# The exit codes of `timeout` for a command that it has ended: one that heeds a signal, and one that does not.
TIMED_OUT = (124, 137)
# Ansible makes variables of facts, of all hosts with run_once, and shows warnings as its own.
ACTED_ON = ("add_group", "add_host", "deprecations", "invocation", "unreachable", "warnings")
# With these prefixes, keys are Ansible's own, or make a value something else than JSON.
PREFIXES = ("ansible_", "_ansible_", "__ansible_")
JOB_ID = "ansible_job_id"


def limited_command(command: str, seconds: int, converses: bool = False, max_bytes: int = MAX_OUTPUT_BYTES) -> str:
    """A command line for a shell that ends a command after a time, and cuts what it prints.

    converses: whether the command waits for an answer to what it prints; otherwise that may come late.
    max_bytes: the limit of what it prints.
    """
    run, head = f"timeout -k 5 {seconds} {command}", "stdbuf -o0 head" if converses else "head"
    outputs = f"{{ {{ {run}; echo $? >&5; }} | {head} -c {max_bytes} >&3; }} 2>&1 | {head} -c {MAX_ERROR_BYTES} >&4"
    return f"exec 3>&1 4>&2; code=$({{ {outputs}; }} 5>&1); exit $code"


def answer_problem(code: int, stdout: bytes, limit: int, took: float) -> str:
    """Why an answer does not count, or nothing."""
    if len(stdout) >= MAX_OUTPUT_BYTES:
        return f"a command has printed more than {MAX_OUTPUT_BYTES >> 20} MiB"
    return f"a command has not ended within {limit} s" if code in TIMED_OUT and took >= limit else ""


def reduced_answer(stdout: bytes) -> bytes:
    """The answer of a module without the keys that Ansible acts on. Other output stays as it is."""
    if b"{" not in stdout:
        return stdout
    try:
        # As Ansible reads it.
        answer = json.loads(_filter_non_json_lines(to_text(stdout, errors="surrogate_then_replace"), True)[0])
    except (ValueError, RecursionError):
        return stdout
    kept = {key: value for key, value in answer.items() if key == JOB_ID or not is_acted_on(key)}
    return stdout if kept == answer else json.dumps(kept).encode()


def is_acted_on(key: str) -> bool:
    return key in ACTED_ON or key.startswith(PREFIXES)


# Copies files through the input and the output of commands, for connections that have nothing else.
#
# Files travel in parts, each in a command of its own: connections hold the input and the output of a command in
# memory.

BLOCK = 64 * 1024
WRITE_BLOCKS = 1024
# Fewer: with every piece that arrives, the connection of ssh copies all that it has read. 8 MiB are the fastest for it.
READ_BLOCKS = 128
WRITE_PART, READ_PART = WRITE_BLOCKS * BLOCK, READ_BLOCKS * BLOCK
# Runs a command with an input, and returns its output. Raises an error that names the file if the command fails.
Run = Callable[[str, "bytes | None"], bytes]


def put_file(run: Run, source: str, target: str) -> None:
    """Copy a file of the controller. Raises AnsibleFileNotFound if there is none."""
    if not Path(source).exists():
        raise AnsibleFileNotFound(f"file or module does not exist: {source}")
    with Path(source).open("rb") as file:
        number, data = 0, file.read(WRITE_PART)
        while data or not number:
            run(write_command(target, number, not data), data)
            number, data = number + 1, file.read(WRITE_PART)


def fetch_file(run: Run, source: str, target: str, size: int | None = None) -> None:
    """Copy a file to the controller.

    size: of a regular file that a job may have replaced meanwhile. No link is followed, nothing is waited for, and
    at most one part more is read.
    """
    with Path(target).open("wb") as file:
        number, data = 0, b""
        while (not number or len(data) == READ_PART) and (size is None or file.tell() <= size):
            data = run(read_command(source, number, size is None), None)
            file.write(data)
            number += 1


def write_command(path: str, part: int, empty: bool = False) -> str:
    """Writes a part of a file. It may be repeated: it has its place in the file."""
    position = f" seek={part * WRITE_BLOCKS} conv=notrunc" if part else ""
    return f"dd of={shlex.quote(path)} bs={BLOCK}{position}{' count=0' if empty else ''}"


def read_command(path: str, part: int, trusted: bool = True) -> str:
    """Reads a part of a file. trusted: it may be a link, or a FIFO that has to be waited for."""
    # Without fullblock, a block that a file system gives in pieces would look like the end of the file.
    flags = "fullblock" if trusted else "fullblock,nofollow,nonblock"
    return f"dd if={shlex.quote(path)} bs={BLOCK} skip={part * READ_BLOCKS} count={READ_BLOCKS} iflag={flags}"


def copy_error(node: str, path: str, stderr: bytes) -> str:
    """The message for a file that could not be read or written."""
    # dd's own statistics follow its error.
    reason = next((line for line in stderr.decode(errors="replace").splitlines() if "records" not in line), "")
    return f"{node}: {printable(path, lines=False)} was not copied: {one_line(reason) or 'no reason given'}"
