# SPDX-License-Identifier: GPL-3.0-or-later
"""Copies files through the input and output of `dd`, for connections that have nothing else.

A file travels in parts, one command for each: a connection holds the input and output of a command in memory.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from ansible.errors import AnsibleFileNotFound
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import one_line, printable

BLOCK_BYTES = 64 * 1024
# The blocks of a part. Fewer are read at once: the ssh connection copies all that it has read with every piece that
# arrives, and is fastest with 8 MiB.
WRITE_BLOCKS, READ_BLOCKS = 1024, 128
WRITE_PART_BYTES, READ_PART_BYTES = WRITE_BLOCKS * BLOCK_BYTES, READ_BLOCKS * BLOCK_BYTES
# Runs a command with an input, and returns its output. Raises an error that names the file if the command fails.
Run = Callable[[str, "bytes | None"], bytes]


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
