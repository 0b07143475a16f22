# SPDX-License-Identifier: GPL-3.0-or-later
"""The main step of a Slurm job on one host. It runs commands until the job ends: `step.py DIRECTORY`.

When a step ends, Slurm kills all processes that it started. Ansible's connection makes a short step for each command.
Such a step only relays its command to the main step (relay.py). So what a command starts, such as a node of Ray, lasts
as long as the job, in the cgroup of the job. If the main step runs in a container, so do the commands.

DIRECTORY is the cluster's directory on the host. This program is a single file that needs only the standard library of
Python 3.9, because the batch script passes its text to Python.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Mapping
from pathlib import Path

# The zero byte makes the socket abstract. It has no file, so a relay outside the container of the main step reaches it.
SOCKET_NAME = "\0argus-verl-{uid}-{job}"
# The files in DIRECTORY that tell the supervisor of each node how to run Ray. Only working_directory is read here.
ORDER_FILES = "*/nodes/*/node.json"
# How long processes may take to end. Slurm kills them after KillWait, 30 s by default.
END_SECONDS = 20.0
SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT)
PR_SET_CHILD_SUBREAPER = 36
NOT_FOUND = 127
# Slurm may set the variables of all vendors. They contradict each other when Ray sets one of them for an actor.
DEVICE_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "GPU_DEVICE_ORDINAL",
    "ZE_AFFINITY_MASK",
)
AMD_DRIVER = Path("/dev/kfd")


def visible_devices(environ: Mapping[str, str], amd: bool) -> dict[str, str]:
    """Return the one variable that names the job's GPUs. ROCR_VISIBLE_DEVICES is renamed, because Ray refuses it."""
    names = ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES") if amd else ("CUDA_VISIBLE_DEVICES",)
    devices = next(filter(None, map(environ.get, names)), "")
    return {names[0]: devices} if devices else {}


def command_environment(environ: Mapping[str, str], amd: bool) -> dict[str, str]:
    """Return the environment of commands: that of the step, without variables for other programs."""
    left_out = (*DEVICE_VARIABLES, "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    variables = {name: text for name, text in environ.items() if name not in left_out}
    return {**variables, **visible_devices(environ, amd), "LANG": "C.UTF-8"}


def create_directory(directory: Path) -> None:
    """Create the cluster's directory. One that exists, as after Slurm requeued the job, is removed first."""
    with contextlib.suppress(FileNotFoundError):
        status = directory.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise SystemExit(f"{directory} belongs to another user of this host, or is no directory; remove it")
        shutil.rmtree(directory)
    directory.mkdir(mode=0o700)


def is_from_same_user(connection: socket.socket) -> bool:
    """Whether a process of this user is at the other end."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[1]) == os.geteuid()


def run_command(connection: socket.socket) -> None:
    """Run the command of a relay with the relay's input and output, and answer with its exit code."""
    received, streams, _flags, _address = socket.recv_fds(connection, 65536, 3)
    while part := connection.recv(65536):
        received += part
    child = os.fork()
    if not child:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        # Processes that the command leaves behind must not keep other descriptors open.
        os.closerange(3, max(streams) + 1)
        os.setsid()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        argv = json.loads(received)
        with contextlib.suppress(OSError):
            # Not S606: the relay is of this user (is_from_same_user), to whom the job belongs.
            os.execvpe(argv[0], argv, command_environment(os.environ, AMD_DRIVER.exists()))  # noqa: S606
        os._exit(NOT_FOUND)
    # Close the streams here, so that readers of the output see its end when the command ends.
    for stream in (*streams, *range(3)):
        with contextlib.suppress(OSError):
            os.close(stream)
    _pid, status = os.waitpid(child, 0)
    code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
    with contextlib.suppress(OSError):
        connection.sendall(struct.pack("i", code))


def listen(job: str) -> socket.socket:
    """Return the socket at which the relays of a job connect."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(SOCKET_NAME.format(uid=os.geteuid(), job=job))
    server.listen(64)
    server.settimeout(0.1)
    return server


def serve(server: socket.socket) -> None:
    """Run the commands of relays until this process gets SIGTERM or SIGINT."""
    while True:
        with contextlib.suppress(OSError):
            serve_relay(server.accept()[0])
        reap_children()
        received = signal.sigtimedwait(SIGNALS, 0)
        if received and received.si_signo != signal.SIGCHLD:
            return


def serve_relay(connection: socket.socket) -> None:
    """Serve a relay in a child process, so that other relays need not wait."""
    with connection:
        if not is_from_same_user(connection) or os.fork():
            return
        connection.settimeout(None)
        with contextlib.suppress(OSError, ValueError):
            run_command(connection)
        os._exit(0)


def reap_children() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def descendants(pid: int) -> set[int]:
    """Return all descendants of a process. As a subreaper, this process adopts those that lose their parent."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name, in parentheses, may contain anything.
            parent = int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(int(entry.name))
    pids: set[int] = set()
    level = children.get(pid, [])
    while level:
        pids.update(level)
        level = [child for parent in level for child in children.get(parent, [])]
    return pids


def end_all(directory: Path) -> None:
    """End all descendants, and remove the cluster's directory and its nodes' sessions: after the job, nothing can."""
    sessions = []
    for order in directory.glob(ORDER_FILES):
        with contextlib.suppress(OSError, ValueError, KeyError):
            sessions.append(str(json.loads(order.read_bytes())["working_directory"]))
    signalled: set[int] = set()
    deadline = time.monotonic() + END_SECONDS
    while running := descendants(os.getpid()):
        late = time.monotonic() > deadline
        for pid in running if late else running - signalled:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
        signalled |= running
        time.sleep(0.05)
        reap_children()
    for path in (*sessions, str(directory)):
        shutil.rmtree(path, ignore_errors=True)


def main(directory: Path) -> None:
    os.umask(0o022)
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    create_directory(directory)
    serve(listen(os.environ["SLURM_JOB_ID"]))
    end_all(directory)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
