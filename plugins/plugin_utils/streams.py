# SPDX-License-Identifier: GPL-3.0-or-later
"""What goes through the input and output of commands on machines: limited output, and copies of files.

Jobs can change what a module of Ansible answers in a node: it is cut, and keys on which Ansible would act are removed.
Files travel through `dd` in parts, one command for each: a connection holds a command's input and output in memory.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

from ansible.errors import AnsibleFileNotFound
from ansible.module_utils.common.text.converters import to_text
from ansible.module_utils.json_utils import _filter_non_json_lines
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import one_line, printable

# More than READ_PART_BYTES, and not much more: Ansible needs six times the size of an answer.
MAX_OUTPUT_BYTES, MAX_ERROR_BYTES = 16 << 20, 1 << 20
# The exit codes of `timeout` for a command that it has ended by SIGTERM, and by SIGKILL.
TIMEOUT_EXIT_CODES = (124, 137)
# Keys of an answer on which Ansible acts, as by adding hosts, giving up one, or showing warnings as its own.
ACTED_ON = ("add_group", "add_host", "deprecations", "invocation", "unreachable", "warnings")
# Keys with these prefixes become facts, which with run_once are set on all hosts, or make a value more than JSON.
PREFIXES = ("ansible_", "_ansible_", "__ansible_")
JOB_ID = "ansible_job_id"
BLOCK_BYTES = 64 * 1024
# The blocks of a part. Fewer are read at once: the ssh connection copies all that it has read with every piece that
# arrives, and is fastest with 8 MiB.
WRITE_BLOCKS, READ_BLOCKS = 1024, 128
WRITE_PART_BYTES, READ_PART_BYTES = WRITE_BLOCKS * BLOCK_BYTES, READ_BLOCKS * BLOCK_BYTES
# Runs a command with an input, and returns its output. Raises an error that names the file if the command fails.
Run = Callable[[str, "bytes | None"], bytes]


def limited_command(command: str, seconds: int, converses: bool = False, max_bytes: int = MAX_OUTPUT_BYTES) -> str:
    """A shell's command line that ends a command after some seconds, and cuts its output.

    converses: whether the command waits for an answer to its output, which then must not be buffered.
    max_bytes: the limit of its standard output.
    """
    run, head = f"timeout -k 5 {seconds} {command}", "stdbuf -o0 head" if converses else "head"
    outputs = f"{{ {{ {run}; echo $? >&5; }} | {head} -c {max_bytes} >&3; }} 2>&1 | {head} -c {MAX_ERROR_BYTES} >&4"
    return f"exec 3>&1 4>&2; code=$({{ {outputs}; }} 5>&1); exit $code"


def limit_problem(code: int, stdout: bytes, seconds: int, took_seconds: float) -> str:
    """Which limit of limited_command() a command has reached, so that its output does not count; "" if none."""
    if len(stdout) >= MAX_OUTPUT_BYTES:
        return f"a command has printed more than {MAX_OUTPUT_BYTES >> 20} MiB"
    return (
        f"a command has not ended within {seconds} s" if code in TIMEOUT_EXIT_CODES and took_seconds >= seconds else ""
    )


def without_keys_acted_on(stdout: bytes) -> bytes:
    """The JSON answer of a module without the keys on which Ansible acts. Other output stays as it is."""
    if b"{" not in stdout:
        return stdout
    try:
        # Ansible finds the JSON in the same way.
        answer = json.loads(_filter_non_json_lines(to_text(stdout, errors="surrogate_then_replace"), True)[0])
    except (ValueError, RecursionError):
        return stdout
    kept = {key: value for key, value in answer.items() if key == JOB_ID or not is_acted_on(key)}
    return stdout if kept == answer else json.dumps(kept).encode()


def is_acted_on(key: str) -> bool:
    return key in ACTED_ON or key.startswith(PREFIXES)


def put_file(run: Run, source: str, target: str) -> None:
    """Copy a file of the controller to the machine. Raises AnsibleFileNotFound if there is no such file."""
    if not Path(source).exists():
        raise AnsibleFileNotFound(f"file or module does not exist: {source}")
    with Path(source).open("rb") as file:
        number, data = 0, file.read(WRITE_PART_BYTES)
        while data or not number:
            run(write_command(target, number, not data), data)
            number, data = number + 1, file.read(WRITE_PART_BYTES)


def fetch_file(run: Run, source: str, target: str, size: int | None = None) -> None:
    """Copy a file of the machine to the controller.

    size: the bytes of a regular file that a job may have replaced meanwhile: no link is followed, no FIFO waited for,
    and at most one part more than the size is read. None for a trusted file.
    """
    with Path(target).open("wb") as file:
        number, data = 0, b""
        while (not number or len(data) == READ_PART_BYTES) and (size is None or file.tell() <= size):
            data = run(read_command(source, number, size is None), None)
            file.write(data)
            number += 1


def write_command(path: str, part: int, empty: bool = False) -> str:
    """The command that writes one part of a file. Repeated, it writes the same bytes to the same place."""
    position = f" seek={part * WRITE_BLOCKS} conv=notrunc" if part else ""
    return f"dd of={shlex.quote(path)} bs={BLOCK_BYTES}{position}{' count=0' if empty else ''}"


def read_command(path: str, part: int, trusted: bool = True) -> str:
    """The command that reads one part of a file. trusted: whether it may follow a link, and wait for a FIFO."""
    # Without fullblock, a block that the file system returns in pieces would look like the end of the file.
    flags = "fullblock" if trusted else "fullblock,nofollow,nonblock"
    return f"dd if={shlex.quote(path)} bs={BLOCK_BYTES} skip={part * READ_BLOCKS} count={READ_BLOCKS} iflag={flags}"


def copy_error(node: str, path: str, stderr: bytes) -> str:
    """The message for a file that could not be read or written."""
    # dd's own statistics follow its error.
    reason = next((line for line in stderr.decode(errors="replace").splitlines() if "records" not in line), "")
    return f"{node}: {printable(path, lines=False)} was not copied: {one_line(reason) or 'no reason given'}"
