# SPDX-License-Identifier: Apache-2.0
"""argus node: a node without a container, as a process of the user, in a session of its own.

Only for the playbooks, which start and remove it. `argus node DIRECTORY` is its supervisor.
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
from ..common.node_process import LOG, MARK, ORDER, RUNNING, STATE, look, neighbours, processes, supervisor
from ..io import writing
from ..jobs.services import OperationError
from .request import VerbRequest, common, request_from, write_answer

ENVIRONMENT = "environment.sh"
# The fields of a request that go to the supervisor.
OF_SUPERVISOR = {"command", "working_directory", "specification", "settings", "derived"}
START_SECONDS, STOP_SECONDS = 15.0, 30.0
LAST_WORDS = 1000
# A node inherits from a Slurm step its GPUs and the variables set before the step. It does not inherit Slurm's own
# variables, which change libraries, nor those of shells, of `module` and of the user.
STEP = "SLURM_JOB_ID"
NOT_OF_NODES = re.compile(
    r"""(SLURM|SRUN|SBATCH|PMI|BASH|LMOD|_*MODULE|ANSIBLE|ARGUS)\w*(%%|\(\))?|_LM\w*|LOADEDMODULES|_|SHELL|SHLVL|(OLD)?PWD
    |ENVIRONMENT|TERM\w*|HOSTNAME|HOME|USER|LOGNAME|LC_\w+|PATH""",
    re.VERBOSE,
)


class NodeRequest(VerbRequest):
    """The options of `node`.

    directory: of the node. working_directory: of Ray's sessions, removed with the last node of the cluster on the host;
    empty if it is not known.
    command: of Ray, which stays in the foreground. environment: the whole one, of every process of the node.
    specification: identifies the settings of the node: one with another specification is started again. settings,
    derived: as JSON, to explain later changes. check: only tell how it is.
    """

    state: Literal["present", "absent"] = "present"
    directory: str
    working_directory: str
    command: list[str] = Field(default_factory=list)
    environment: dict[str, str] = Field(default_factory=dict)
    specification: str = ""
    settings: str = ""
    derived: str = ""
    check: bool = False


def change(request: NodeRequest) -> tuple[dict[str, Any], bool]:
    """Start or remove the node; returns its state, and whether it changed. Raises OperationError."""
    directory = Path(request.directory).expanduser()
    sessions = Path(request.working_directory) if request.working_directory else None
    try:
        node = look(directory)
        changed = (node.state, node.specification) != (RUNNING, request.specification)
        if request.state == "absent":
            changed = bool(node.state) if request.check else remove(directory, sessions)
        elif changed and not request.check:
            start(directory, request)
    except OSError as error:
        raise OperationError(f"{error.filename or directory}: {error.strerror}") from error
    return {"node": asdict(look(directory))}, changed


def start(directory: Path, request: NodeRequest) -> None:
    """Start a node; what runs of it, or was left of it, is ended first. Raises OperationError and OSError."""
    stop(directory)
    sessions = Path(request.working_directory)
    create_private_directory(directory)
    create_private_directory(sessions)
    if not neighbours(directory):
        # The sessions of a Ray that has ended: nothing else ever removes them.
        shutil.rmtree(sessions / "ray", ignore_errors=True)
    for entry in os.scandir(directory):
        # A FIFO or a link that a job has put there would be opened for writing.
        if entry.name in (STATE, NO_RESTART_FILE) or not (entry.is_file(follow_symlinks=False) or entry.is_dir()):
            os.unlink(entry.path)
    environment = with_step(request.environment, os.environ)
    order = {**request.model_dump(include=OF_SUPERVISOR), "environment": environment}
    writing.write_text(directory / ORDER, json.dumps(order), durable=False)
    writing.write_text(directory / ENVIRONMENT, exports(environment), durable=False)
    with writing.open_for_append(directory / LOG) as log:
        # Without the mark, or it would end itself.
        child = subprocess.Popen(
            [sys.executable, "-I", Program.of_this_process().path, "node", str(directory)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            env={"PATH": os.defpath, "LANG": "C.UTF-8"},
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and child.poll() is None:
        node = look(directory)
        if node.state == RUNNING and node.started_at:
            return
        if node.restarts:
            break
        time.sleep(0.05)
    words = (directory / LOG).read_text(errors="replace")[-LAST_WORDS:].splitlines()[-3:]
    raise OperationError(f"Ray was not started: {' / '.join(words)} ({directory / LOG})")


def stop(directory: Path) -> bool:
    """End a node; whether there was anything to end."""
    changed, began = False, time.monotonic()
    while (pid := supervisor(directory)) is not None:
        changed, lasted = True, time.monotonic() - began
        if pid > 0:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM if lasted <= STOP_SECONDS / 2 else signal.SIGKILL)
        if lasted > STOP_SECONDS:
            raise OperationError(f"the supervisor of {directory} does not end; end it by hand (pid {pid})")
        time.sleep(0.1)
    changed |= bool(processes(directory))
    if left := kill_all(directory):
        numbers = ", ".join(map(str, sorted(left)))
        raise OperationError(f"processes of the node do not end, even with SIGKILL: {numbers}; see ps and dmesg")
    return changed


def remove(directory: Path, sessions: Path | None) -> bool:
    """End a node and remove its files; whether there was anything. sessions: those of Ray, of all nodes of the host."""
    changed = stop(directory)
    if directory.is_dir():
        changed = True
        shutil.rmtree(directory)
    with contextlib.suppress(OSError):
        directory.parent.rmdir()
    if sessions and not neighbours(directory) and belongs_to_user(sessions):
        changed = True
        # The last two nodes of a host may be removed at once.
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(sessions)
    return changed


def with_step(node_environment: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a node; in a step of Slurm with what the step has."""
    if STEP not in environ:
        return dict(node_environment)
    # The directory of Ray's own Python stays the first.
    first, *rest = node_environment.get("PATH", "").split(os.pathsep)
    path = os.pathsep.join(dict.fromkeys([first, *environ.get("PATH", "").split(os.pathsep), *rest]))
    step = {name: text for name, text in environ.items() if not NOT_OF_NODES.fullmatch(name)}
    if not Path(step.get("TMPDIR", "/")).is_dir():
        # It may be one of the host from which the job of Slurm was submitted.
        del step["TMPDIR"]
    return {**step, **node_environment, "PATH": path}


def exports(environment: Mapping[str, str]) -> str:
    """The environment of a node for people's shells."""
    lines = (f"export {name}={shlex.quote(value)}\n" for name, value in sorted(environment.items()) if name != MARK)
    return "# The environment of this node: `. environment.sh`, and then `ray status`.\n" + "".join(lines)


def belongs_to_user(directory: Path) -> bool:
    """Whether it is a directory of this user, and no link."""
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


@click.command(name="node", hidden=True)
@click.argument("directory", required=False, type=click.Path(path_type=Path, exists=True, file_okay=False))
@common
def node_command(as_json: bool, directory: Path | None, **options: Any) -> None:
    """Keep the Ray of a node running that is a process, or start or remove it, as cluster_up.yml does."""
    if directory:
        if not supervise(directory):
            raise OperationError(f"another process keeps {directory} running")
        return
    result, changed = change(request_from(NodeRequest, as_json, **options))
    write_answer(result, changed=changed)
