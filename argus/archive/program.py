# SPDX-License-Identifier: Apache-2.0
"""Finds and starts this program, argus, beside a job: one file per version, owned by root and read-only on nodes.

A directory of each machine has all versions, and the link `current` to the newest. In containers, it is /opt/argus;
without a container, the processes of a node have its path in their environment.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from ..common.identity import PROGRAM_DIRECTORY
from ..io import writing
from .archive import JOB_VARIABLES, STEWARD_LOG, Archive

DEFAULT_DIRECTORY = "/opt/argus"
CURRENT_LINK = "current"
# The version of the collection.
VERSION = "0.1.0"
PROGRAM_FILE = re.compile(r"argus-[0-9a-f]{12}\.zip")
# The file of an archive that names the program version with which its job was submitted.
PROGRAM_RECORD = "config/argus.json"
# The time limit of a call of Ray's client.
RAY_CLIENT_TIMEOUT_SECONDS = 120.0


def versions_directory() -> str:
    """The directory of all versions, as a shell or Ray on any node expands it: without containers, it may differ."""
    return f"${{{PROGRAM_DIRECTORY}}}" if PROGRAM_DIRECTORY in os.environ else DEFAULT_DIRECTORY


@dataclass(frozen=True)
class Program:
    """One version of the program: a zip file, or a directory, that Python can run."""

    path: str

    @classmethod
    def of_this_process(cls) -> Program:
        return cls(os.path.realpath(Path(__file__).parents[2]))

    @classmethod
    def of_job(cls, archive: Archive) -> Program:
        """The version with which a job was submitted; that of this process if the node lacks it."""
        program, name = cls.of_this_process(), cls.recorded(archive)
        path = Path(program.path).with_name(name) if name else Path(program.path)
        return cls(str(path)) if path.is_file() else program

    @staticmethod
    def recorded(archive: Archive) -> str:
        """The file name of the version with which a job was submitted; "" if unknown. A job can write another name."""
        name = str(archive.read_mapping(PROGRAM_RECORD).get("program", ""))
        return name if PROGRAM_FILE.fullmatch(name) else ""

    @property
    def name(self) -> str:
        return Path(self.path).name

    @property
    def python_path(self) -> str:
        """The value of PYTHONPATH for any node: this version, or the newest where it is missing."""
        return f"{versions_directory()}/{self.name}:{versions_directory()}/{CURRENT_LINK}"

    def command(self, archive: str, verb: str, *arguments: str) -> list[str]:
        return [sys.executable, self.path, "launch", verb, archive, *arguments]


class Runner:
    """Runs verbs of the launcher beside a job, each in another process with the code of this one."""

    def __init__(self, archive: Archive, program: Program | None = None) -> None:
        self.archive = archive
        self.program = program or Program.of_this_process()

    def start(self, verb: str, *arguments: str, output: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        """Start a verb in the background, in a session of its own, so that it outlives this process."""
        return spawn(self.program.command(str(self.archive.path), verb, *arguments), output)

    def run(self, verb: str, *arguments: str, seconds: float) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            wait(self.start(verb, *arguments), seconds)

    def run_ray_client(self, verb: str, attempt: int) -> None:
        """Run a verb that needs Ray's client. Raises TimeoutExpired."""
        self.run_logged(self.program.command(str(self.archive.path), verb, str(attempt)))

    def admit(self) -> None:
        """Run `argus admit`, which checks a job again. Raises TimeoutExpired."""
        self.run_logged([sys.executable, self.program.path, "admit", self.archive.submission_id])

    def run_logged(self, command: list[str]) -> None:
        """Run a command whose output goes to the steward's log. Raises TimeoutExpired."""
        log = subprocess.DEVNULL
        with contextlib.ExitStack() as stack:
            # A job may have replaced the log. Its errors are lost then, but the job is still looked after.
            with contextlib.suppress(OSError):
                log = stack.enter_context(writing.open_for_append(self.archive.path / STEWARD_LOG))
            wait(spawn(command, log), RAY_CLIENT_TIMEOUT_SECONDS)


def spawn(command: list[str], output: int) -> subprocess.Popen[bytes]:
    """Start a command of this program in a session of its own, and without the variables of a process of a job."""
    python, *rest = command
    # Like this process: for one of the steward, neither the environment nor a home directory may add modules.
    isolated = ["-I"] if sys.flags.isolated else []
    return subprocess.Popen(
        [python, *isolated, *rest],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd="/",
        env={name: value for name, value in os.environ.items() if name not in JOB_VARIABLES},
        start_new_session=True,
    )


def kill_group(process: subprocess.Popen[bytes], signum: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signum)


def wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait for a process that leads a process group; after that time, kill the group and raise TimeoutExpired."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        kill_group(process, signal.SIGKILL)
        process.wait()
        raise


def entrypoint(archive: str) -> str:
    """The shell command with which Ray starts the launcher of a job; the number of the attempt has to follow."""
    path = f"{versions_directory()}/{CURRENT_LINK}"
    quoted = f'"{path}"' if path.startswith("$") else path
    return f"python3 {quoted} launch run {shlex.quote(archive)}"
