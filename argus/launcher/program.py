# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The launcher as a program that Python runs.

On workers it is the copy in the job's archive, which is part of the job. On the head it must not be: there it is a zip
file in sealed memory, which no process can change, made of the modules that the controller has sent.
"""

from __future__ import annotations

import fcntl
import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .archive import JOB_ENV, Archive

PACKAGE = "argus_launcher"
MAIN = f'''"""Run as `python3 <archive>/config/launcher`; see commands.py."""

import sys

from {PACKAGE}.commands import main

sys.exit(main(sys.argv[1:]))
'''
DESCRIPTORS = "/proc/self/fd"
SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


@dataclass(frozen=True)
class Program:
    """A directory, or the descriptor of a zip file, that contains the launcher."""

    path: str
    descriptor: int | None = None

    @classmethod
    def of_this_process(cls) -> Program:
        """The program whose code this process runs."""
        path = Path(__file__).parents[1]
        sealed = str(path.parent) == DESCRIPTORS
        return cls(str(path), int(path.name) if sealed else None)

    @classmethod
    def sealed(cls, files: Mapping[str, str]) -> Program:
        """A program in sealed memory; the caller closes its descriptor.

        files: the text of each file by its name. The memory is freed when the last process has ended that runs it.
        """
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as packed:
            for name, text in files.items():
                packed.writestr(name, text)
        descriptor = os.memfd_create("argus-launcher", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            with os.fdopen(os.dup(descriptor), "wb") as memory:
                memory.write(content.getbuffer())
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
        except BaseException:
            os.close(descriptor)
            raise
        return cls(f"{DESCRIPTORS}/{descriptor}", descriptor)

    def arguments(self, archive: Archive, verb: str, *arguments: str) -> dict[str, Any]:
        """The arguments of subprocess.run and Popen that run a verb for a job."""
        # Isolated on the head: neither the environment nor a home directory may add modules.
        isolated = [] if self.descriptor is None else ["-I"]
        return {
            "args": [sys.executable, *isolated, self.path, verb, str(archive.path), *arguments],
            "pass_fds": [] if self.descriptor is None else [self.descriptor],
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
