# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program as Python runs it: one file a version, which belongs to root and which nodes see read-only.

A directory of the machine has all versions, and the link `current` to the newest. In containers it is /opt/argus;
processes of nodes without a container have it in their environment.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .archive import JOB_ENV, Archive
from .identity import PROGRAM_DIRECTORY
from .reading import UnreadableError

DEFAULT_DIRECTORY = "/opt/argus"
CURRENT = "current"
# Of the collection.
VERSION = "0.1.0"
NAME = re.compile(r"argus-[0-9a-f]{12}\.zip")
# Where an archive names the version with which its job was submitted.
RECORD = "config/argus.json"


def directory() -> str:
    """The directory of all versions, for a shell or Ray on any node: of processes, each machine has its own."""
    return f"${{{PROGRAM_DIRECTORY}}}" if PROGRAM_DIRECTORY in os.environ else DEFAULT_DIRECTORY


@dataclass(frozen=True)
class Program:
    """A file, or a directory, that contains the program."""

    path: str

    @classmethod
    def of_this_process(cls) -> Program:
        """The program whose code this process runs."""
        return cls(os.path.realpath(Path(__file__).parents[2]))

    @classmethod
    def of_job(cls, archive: Archive) -> Program:
        """The version with which a job was submitted; that of this process if the node does not have it."""
        own, name = cls.of_this_process(), ""
        # A job can write there, but not what is run.
        with contextlib.suppress(UnreadableError):
            name = str(archive.read_mapping(RECORD).get("program", ""))
        path = Path(own.path).with_name(name) if NAME.fullmatch(name) else Path(own.path)
        return cls(str(path)) if path.is_file() else own

    @property
    def name(self) -> str:
        return Path(self.path).name

    @property
    def python_path(self) -> str:
        """Where Python finds the program on any node: this version, or on a node without it the newest."""
        return f"{directory()}/{self.name}:{directory()}/{CURRENT}"

    def command(self, archive: str, verb: str, *arguments: str) -> list[str]:
        """The command line that runs a verb of the launcher in this node."""
        return [sys.executable, self.path, "launch", verb, archive, *arguments]

    def arguments(self, archive: Archive, verb: str, *arguments: str) -> dict[str, Any]:
        """The arguments of subprocess.run and Popen that run a verb beside a job."""
        python, *rest = self.command(str(archive.path), verb, *arguments)
        # For the processes of the steward, as for itself, neither the environment nor a home directory adds modules.
        isolated = ["-I"] if sys.flags.isolated else []
        return {
            "args": [python, *isolated, *rest],
            "stdin": subprocess.DEVNULL,
            "cwd": "/",
            "env": {name: value for name, value in os.environ.items() if name not in JOB_ENV},
        }

    def start(self, archive: Archive, verb: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Run a verb in the background, in a session of its own: it outlives its parent."""
        return subprocess.Popen(
            **self.arguments(archive, verb, *arguments),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


def entrypoint(archive: str) -> str:
    """The command of a job on the worker of its driver, for a shell; the number of the attempt follows."""
    path = f"{directory()}/{CURRENT}"
    quoted = f'"{path}"' if path.startswith("$") else path
    return f"python3 {quoted} launch run {shlex.quote(archive)}"
