# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies files through the input and output of commands, for connections that have nothing else."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from ansible.errors import AnsibleFileNotFound
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import one_line, printable

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
