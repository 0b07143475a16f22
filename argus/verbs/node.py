# SPDX-License-Identifier: Apache-2.0
"""argus node: starts and removes a node that runs as a process of the user, without a container.

Only playbooks call it. To start a node, it launches `argus node DIRECTORY`, the supervisor that keeps Ray running.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import click
from pydantic import Field

from ..archive.program import Program
from ..cluster.supervisor import NO_RESTART_FILE, kill_all, supervise
from ..common import node_process
from ..common.node_process import (
    LOG_FILE,
    MARK_VARIABLE,
    ORDER_FILE,
    RUNNING,
    STATE_FILE,
    neighbours,
    read_node_process,
)
from ..io import writing
from ..jobs.services import OperationError
from .request import VerbRequest, common_options, request_from, write_answer

SLURM_JOB_VARIABLE = "SLURM_JOB_ID"
# The variables of a step that a node does not get: Slurm's own, which change how libraries behave, and those of shells,
# of `module` and of the user. A node gets the others, such as those that select GPUs.
NOT_INHERITED = re.compile(
    r"""(SLURM|SRUN|SBATCH|PMI|BASH|LMOD|_*MODULE|ANSIBLE|ARGUS)\w*(%%|\(\))?|_LM\w*|LOADEDMODULES|_|SHELL|SHLVL|(OLD)?PWD
    |ENVIRONMENT|TERM\w*|HOSTNAME|HOME|USER|LOGNAME|LC_\w+|PATH""",
    re.VERBOSE,
)
# The file with the environment of a node, for people's shells.
ENVIRONMENT_FILE = "environment.sh"
# The fields that go into ORDER_FILE, which tells the supervisor how to run Ray.
ORDER_FIELDS = {"command", "working_directory", "specification", "settings", "derived"}
START_TIMEOUT_SECONDS, STOP_TIMEOUT_SECONDS = 15.0, 30.0
LOG_END_CHARS = 1000


class NodeRequest(VerbRequest):
    state: Literal["present", "absent"] = "present"
    directory: str
    # Where Ray puts its sessions. It is removed with the last node of the cluster on the host; empty if unknown.
    working_directory: str
    command: list[str] = Field(default_factory=list)
    # The complete environment of the processes of the node, to which a step of Slurm adds.
    environment: dict[str, str] = Field(default_factory=dict)
    # A digest of the settings. A node with another one is started again.
    specification: str = ""
    # As JSON, for a later run that explains a change:
    settings: str = ""  # the settings of the inventory
    derived: str = ""  # the settings that the plan has computed
    check: bool = False


def apply(request: NodeRequest) -> tuple[dict[str, Any], bool]:
    """Start or remove the node; return its state, and whether it changed. Raises OperationError."""
    directory = Path(request.directory).expanduser()
    session_root = Path(request.working_directory) if request.working_directory else None
    try:
        node = read_node_process(directory)
        changed = (node.state, node.specification) != (RUNNING, request.specification)
        if request.state == "absent":
            changed = bool(node.state) if request.check else remove(directory, session_root)
        elif changed and not request.check:
            start(directory, request)
    except OSError as error:
        raise OperationError(f"{error.filename or directory}: {error.strerror}") from error
    return {"node": asdict(read_node_process(directory))}, changed


def start(directory: Path, request: NodeRequest) -> None:
    """Start a node, after ending all processes that an earlier start has left. Raises OperationError and OSError."""
    stop(directory)
    session_root = Path(request.working_directory)
    create_private_directory(directory)
    create_private_directory(session_root)
    if not neighbours(directory):
        # The sessions of an earlier Ray, which nothing else ever removes.
        shutil.rmtree(session_root / "ray", ignore_errors=True)
    for entry in os.scandir(directory):
        # A FIFO or a link that a job has put there would be opened for writing.
        if entry.name in (STATE_FILE, NO_RESTART_FILE) or not (entry.is_file(follow_symlinks=False) or entry.is_dir()):
            os.unlink(entry.path)
    environment = with_slurm_step(request.environment, os.environ)
    order = {**request.model_dump(include=ORDER_FIELDS), "environment": environment}
    writing.write_text(directory / ORDER_FILE, json.dumps(order), durable=False)
    writing.write_text(directory / ENVIRONMENT_FILE, export_script(environment), durable=False)
    with writing.open_for_append(directory / LOG_FILE) as log:
        # The supervisor does not get the mark of the node's processes: it kills all processes that have it.
        child = subprocess.Popen(
            [sys.executable, "-I", Program.of_this_process().path, "node", str(directory)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env={"PATH": os.defpath, "LANG": "C.UTF-8"},
            start_new_session=True,
        )
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while time.monotonic() < deadline and child.poll() is None:
        node = read_node_process(directory)
        if node.state == RUNNING and node.started_at:
            return
        if node.restarts:
            break
        time.sleep(0.05)
    last_lines = (directory / LOG_FILE).read_text(errors="replace")[-LOG_END_CHARS:].splitlines()[-3:]
    raise OperationError(f"Ray was not started: {' / '.join(last_lines)} ({directory / LOG_FILE})")


def stop(directory: Path) -> bool:
    """End all processes of a node; return whether there were any. Raises OperationError if some do not end."""
    changed, start_time = False, time.monotonic()
    while (pid := node_process.supervisor_pid(directory)) is not None:
        changed, waited = True, time.monotonic() - start_time
        if pid > 0:  # else the supervisor is on another host or in a container
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if waited <= STOP_TIMEOUT_SECONDS / 2 else signal.SIGKILL)
        if waited > STOP_TIMEOUT_SECONDS:
            raise OperationError(f"the supervisor of {directory} does not end; end it by hand (pid {pid})")
        time.sleep(0.1)
    changed |= bool(node_process.node_pids(directory))
    if remaining_pids := kill_all(directory):
        numbers = ", ".join(map(str, sorted(remaining_pids)))
        raise OperationError(f"processes of the node do not end, even with SIGKILL: {numbers}; see ps and dmesg")
    return changed


def remove(directory: Path, session_root: Path | None) -> bool:
    """End a node and remove its files; return whether there was anything.

    session_root: where Ray puts the sessions of all nodes of the cluster on this host.
    """
    changed = stop(directory)
    if directory.is_dir():
        changed = True
        shutil.rmtree(directory)
    with contextlib.suppress(OSError):
        directory.parent.rmdir()
    if session_root and not neighbours(directory) and belongs_to_user(session_root):
        changed = True
        # The last two nodes of a host may be removed at once.
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(session_root)
    return changed


def belongs_to_user(directory: Path) -> bool:
    try:
        status = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def create_private_directory(directory: Path) -> None:
    """Create a directory that only this user can enter."""
    directory.parent.mkdir(parents=True, exist_ok=True, mode=0o711)
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    if not belongs_to_user(directory):
        raise OperationError(
            f"{directory} belongs to another user of this host, or is a link; remove it, or set another cluster_name"
        )
    directory.chmod(0o700)


# The environment of a node.
def with_slurm_step(node_environment: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a node, with the variables of the step if `environ`, that of this process, is of a step."""
    if SLURM_JOB_VARIABLE not in environ:
        return dict(node_environment)
    # The directory of Ray's own Python stays the first.
    first, *rest = node_environment.get("PATH", "").split(os.pathsep)
    path = os.pathsep.join(dict.fromkeys([first, *environ.get("PATH", "").split(os.pathsep), *rest]))
    step = {name: text for name, text in environ.items() if not NOT_INHERITED.fullmatch(name)}
    if not Path(step.get("TMPDIR", "/")).is_dir():
        # The value may be a directory of the host from which the job of Slurm was submitted.
        del step["TMPDIR"]
    return {**step, **node_environment, "PATH": path}


def export_script(environment: Mapping[str, str]) -> str:
    """A script that sets the environment of a node in a user's shell, without the mark of the node's processes."""
    lines = (
        f"export {name}={shlex.quote(value)}\n" for name, value in sorted(environment.items()) if name != MARK_VARIABLE
    )
    return "# The environment of this node: `. environment.sh`, and then `ray status`.\n" + "".join(lines)


@click.command(name="node", hidden=True)
@click.argument("directory", required=False, type=click.Path(path_type=Path, exists=True, file_okay=False))
@common_options
def node_command(as_json: bool, directory: Path | None, **options: Any) -> None:
    """With DIRECTORY, keep the Ray of that node running; without, start or remove a node for a playbook."""
    if directory:
        if not supervise(directory):
            raise OperationError(f"another process keeps {directory} running")
        return
    result, changed = apply(request_from(NodeRequest, as_json, **options))
    write_answer(result, changed=changed)
