# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of an attempt, and ends the one that runs; before a trainer, checks which verl it would import."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from ..archive.plan import Plan
from ..archive.program import kill_group
from ..hooks.redact import Redactor
from ..io.reading import read_marker
from .driver_log import AttemptOutput

# The time between SIGTERM and SIGKILL; Ray itself kills a stopped job after RAY_JOB_STOP_WAIT_TIME_S, which is longer.
SIGTERM_GRACE_SECONDS = 10
# How long to copy the rest of a program's output after its end.
OUTPUT_DRAIN_TIMEOUT_SECONDS = 10
# Run by a Python with the trainer's environment and directory. The names with MVP are fixed: users' tools read them.
IMPORT_CHECK = """
import importlib.util, json
specs = [importlib.util.find_spec(name) for name in ("verl", "mvp_marker")]
print(json.dumps([spec and spec.origin for spec in specs]))
"""


def precheck_problem(plan: Plan, environment: Mapping[str, str], print_line: Callable[[str], None]) -> str:
    """Why verl would not be imported from the snapshot of the plan, in the trainer's environment; "" if it would."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_CHECK],
        env=environment,
        cwd=plan.directory or None,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return f"Python cannot search for verl: {done.stderr.strip()}"
    try:
        # An image may print a greeting whenever Python starts: the answer is the last line.
        verl_file, marker_file = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, TypeError, IndexError):
        return f"Python cannot search for verl: it answers {done.stdout[-200:]!r}"
    marker = read_marker(Path(marker_file)) if marker_file else None
    print_line(f"MVP_PRECHECK_VERL_FILE={verl_file}")
    print_line(f"MVP_PRECHECK_MARKER={marker}")
    if not verl_file or not Path(verl_file).is_relative_to(plan.code_path):
        return (
            f"verl would be imported from {verl_file}, not from the snapshot {plan.code_path}; "
            "another entry precedes it on PYTHONPATH"
        )
    if marker != plan.code_id:
        return f"the snapshot's marker is {marker!r}, not {plan.code_id!r}; stage the snapshot again"
    return ""


class ProgramRunner:
    def __init__(
        self, directory: str, secrets: Mapping[str, str], output: AttemptOutput, is_stopping: Callable[[], bool]
    ) -> None:
        """is_stopping: whether a program that has just started is to be ended."""
        self.directory, self.secrets, self.output, self.is_stopping = directory, secrets, output, is_stopping
        # The current program, or the last one.
        self.process: subprocess.Popen[bytes] | None = None
        self.kill_timer: threading.Timer | None = None

    def run_shell(self, command: str, environment: Mapping[str, str], seconds: float) -> int:
        """Run a shell command for so many seconds at most; returns its exit code, negative for a signal."""
        self.output.print_line(f"+ {command}")
        code = self.run(["/bin/sh", "-c", command], environment, seconds)
        if code:
            limit = f", after its limit of {seconds:g} s" if code == -signal.SIGKILL else ""
            self.output.print_line(f"`{command}` ended with exit code {code}{limit}")
        return code

    def run(self, command: list[str], environment: Mapping[str, str], seconds: float | None = None) -> int:
        """Run a program to its end; returns its exit code, negative for a signal.

        seconds: how long it may take. A program with a limit may leave processes, such as a sandbox.
        """
        try:
            self.process = process = subprocess.Popen(
                command,
                env=environment,
                cwd=self.directory or None,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            self.output.print_line(f"{command[0]} cannot be started: {error.strerror}")
            return 127
        if self.is_stopping():  # the signal arrived before the process was assigned
            self.terminate()
        # A left-over process may still write: each process has its own redactor.
        redactor = Redactor(self.secrets.values())
        copier = threading.Thread(target=self.output.copy, args=(process.stdout, redactor), daemon=True)
        copier.start()
        limit = threading.Timer(seconds or 0, kill_group, (process, signal.SIGKILL))
        if seconds:
            limit.start()
        code = process.wait()
        limit.cancel()
        if self.kill_timer:
            self.kill_timer.cancel()  # this process would otherwise wait for it
        if not seconds:
            # Data loaders and other children that outlive the trainer would hold its memory, its ports and the pipe.
            kill_group(process, signal.SIGKILL)
        # A process that has left the group may hold the pipe open forever.
        copier.join(1.0 if seconds else OUTPUT_DRAIN_TIMEOUT_SECONDS)
        self.output.write(redactor.finish())
        return code

    def terminate(self) -> None:
        """Send SIGTERM to the current program and its children on this node, and SIGKILL if they ignore it."""
        # The process id of one that has ended may be another's by now.
        if self.process and self.process.returncode is None and not self.kill_timer:
            kill_group(self.process, signal.SIGTERM)
            # A trainer that ignores SIGTERM would be left behind when Ray kills this process.
            self.kill_timer = threading.Timer(SIGTERM_GRACE_SECONDS, kill_group, (self.process, signal.SIGKILL))
            self.kill_timer.start()
