# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one node has to say of a job: its processes and their stacks, devices, memory, logs; and what it left behind.

Runs inside a node, as a Ray task or on its own, and needs neither the head nor Ray.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from . import redact
from .archive import JOB

FILE_BYTES = 1 << 20
LOG_BYTES = 256 << 10
LOG_FILES = 64
COMMAND_SECONDS = 15
STACKS = 64
# How long Ray's own workers may take to go when their job has ended, and what has been told to go.
LEAVE_SECONDS = 8.0
TERM_SECONDS = 3.0
RAY_LOGS = Path("/tmp/ray/session_latest/logs")  # noqa: S108 - Ray's own place
# torch names shared memory after its process (aten/src/ATen/MapAllocator.cpp, NewProcessWideShmHandle).
SHM = Path("/dev/shm")  # noqa: S108 - the kernel's own place
TORCH_SHM = re.compile(r"torch_(\d+)_")
COMMUNICATION = re.compile(r"NCCL|RCCL|[Gg]loo|ProcessGroup|Watchdog")


@dataclass(frozen=True)
class Process:
    """One process of a job on this node."""

    pid: int
    parent: int
    state: str
    memory_mib: int
    threads: int
    command: str


def clip(text: str, limit: int = FILE_BYTES) -> str:
    """The beginning and the end of a text that is too long."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"


def run(*command: str, seconds: float = COMMAND_SECONDS) -> str:
    """What a command says; of one that is not there, that."""
    if not shutil.which(command[0]):
        return f"{command[0]} is not there\n"
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        errors="replace",
        check=False,
    )
    return done.stdout + done.stderr + (f"[exit code {done.returncode}]\n" if done.returncode else "")


def variables(process: Path) -> dict[str, str]:
    """The environment that a process was started with; none when it is gone or somebody else's."""
    try:
        raw = (process / "environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return dict(line.split("=", 1) for line in raw.split("\0") if "=" in line)


def processes(submission_id: str, proc: Path = Path("/proc")) -> list[Process]:
    """All processes of a job: each inherits its mark, whoever has started it."""
    found = []
    for path in proc.glob("[0-9]*"):
        if int(path.name) == os.getpid() or variables(path).get(JOB) != submission_id:
            continue
        try:
            status = dict(line.split(":\t", 1) for line in (path / "status").read_text().splitlines() if ":\t" in line)
            # Ray's workers overwrite their command line and pad it.
            command = (path / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ").strip()
        except OSError:
            continue  # it has ended meanwhile
        if status["State"].startswith("Z"):
            continue  # ended, and its parent has not asked yet
        memory = int(status.get("VmRSS", "0 kB").split()[0]) // 1024
        found.append(
            Process(int(path.name), int(status["PPid"]), status["State"], memory, int(status["Threads"]), command)
        )
    return sorted(found, key=lambda process: process.pid)


def stacks(found: Iterable[Process]) -> str:
    """The Python stacks of processes, taken without pausing them."""
    spy = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if not spy:
        return "py-spy is not there\n"
    pids = [process.pid for process in found if "python" in process.command or process.command.startswith("ray::")]

    def dump(pid: int) -> str:
        try:
            return run(spy, "dump", "--nonblocking", "--pid", str(pid))
        except subprocess.TimeoutExpired:
            return f"Process {pid}: py-spy gave no answer within {COMMAND_SECONDS} s\n"

    with ThreadPoolExecutor(4) as pool:
        return "\n".join(pool.map(dump, pids[:STACKS]))


def gpus() -> str:
    """The state of the accelerators, by the tool of whoever made them."""
    for tool, arguments in (("nvidia-smi", ("-q",)), ("rocm-smi", ("--showallinfo",))):
        if shutil.which(tool):
            return run(tool) + "\n" + run(tool, *arguments)
    return "neither nvidia-smi nor rocm-smi is there\n"


def shared_memory() -> str:
    lines = [run("df", "-k", str(SHM))]
    for path in sorted(SHM.glob("*")):
        try:
            there = path.stat()
            lines.append(f"{there.st_size:>14} {time.strftime('%FT%TZ', time.gmtime(there.st_mtime))} {path.name}\n")
        except OSError:
            continue
    return "".join(lines)


def memory() -> str:
    parts = [Path("/proc/meminfo").read_text()]
    for name in (
        "memory.max",
        "memory.current",
        "memory.events",
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
    ):
        try:
            parts.append(f"{name} {(Path('/sys/fs/cgroup') / name).read_text()}")
        except OSError:
            continue
    return "".join(parts)


def network() -> str:
    devices = Path("/proc/net/dev").read_text()
    return run("ip", "-brief", "address") + devices + run("ibdev2netdev")


def log_names(job_ids: Iterable[str], since: float, logs: Path = RAY_LOGS) -> list[Path]:
    """Ray's logs of a job on this node, by Ray's ids of its drivers; without one, those written since its start."""
    ids = "|".join(job_ids)
    own = re.compile(rf"worker-\w+-(?:{ids})-\d+\.(?:out|err)|runtime_env_setup-(?:{ids})\.log") if ids else None
    found = [logs / name for name in ("raylet.err", "raylet.out", "ray_process_exit.log")]
    for path in sorted(logs.glob("*")):
        matches = own.fullmatch(path.name) if own else path.name.startswith("worker-") and path.stat().st_mtime > since
        if matches:
            found.append(path)
    return [path for path in found if path.is_file() and path.stat().st_size][:LOG_FILES]


def tail(path: Path, size: int = LOG_BYTES) -> str:
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - size))
        return file.read(size).decode(errors="replace")


def packages() -> str:
    found = {dist.metadata["Name"]: dist.version for dist in importlib.metadata.distributions()}
    return "".join(f"{name}=={found[name]}\n" for name in sorted(found, key=str.lower))


def collect(archive: str, directory: str, request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Write what this node has to say into `directory` below the archive; the entries for the index.

    request: `job_ids` (Ray's own, of all attempts), `since` (seconds since the epoch), `packages` (whether to list
    them). Each source that fails is replaced by a file that says why.
    """
    root = Path(archive)
    redactor = redact.Redactor(redact.load(root).values())
    found = processes(root.name)
    logs = log_names(request["job_ids"], request["since"])
    sources: dict[str, Callable[[], str]] = {
        "processes.json": lambda: json.dumps([asdict(process) for process in found], indent=1),
        "stacks.txt": lambda: stacks(found),
        "environment.json": lambda: json.dumps(
            {
                process.pid: redact.environment(variables(Path("/proc", str(process.pid))), redactor)
                for process in found
            },
            indent=1,
        ),
        "gpu.txt": gpus,
        "memory.txt": memory,
        "shm.txt": shared_memory,
        "disk.txt": lambda: run("df", "-h"),
        "network.txt": network,
        "communication.txt": lambda: "\n".join(
            f"{path.name}: {line}" for path in logs for line in tail(path).splitlines() if COMMUNICATION.search(line)
        ),
        **{f"logs/{path.name}": partial(tail, path) for path in logs},
    }
    if request["packages"]:
        sources["packages.txt"] = packages
    return [write(root, f"{directory}/{name}", source, redactor) for name, source in sources.items()]


def write(archive: Path, name: str, source: Callable[[], str], redactor: redact.Redactor) -> dict[str, Any]:
    """One file of evidence, or in its place why there is none; its entry for the index."""
    entry: dict[str, Any] = {"file": name}
    try:
        text = redactor.text(source())
    except Exception as error:  # whatever it is, the rest is still wanted
        text = redactor.text(f"{type(error).__name__}: {error}\n")
        entry = {"file": f"{name}.error", "error": text.strip()}
    shown = clip(text)
    target = archive / entry["file"]
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(shown, encoding="utf-8", errors="replace")
    return {**entry, "bytes": target.stat().st_size, **({"cut": True} if shown != text else {})}


def sweep(submission_id: str, pids: Iterable[int], patience: float = LEAVE_SECONDS) -> dict[str, Any]:
    """End what a job that has ended left on this node; what that was, and what is still there.

    pids: of the job's processes on this node as Ray knew them, for the shared memory that is named after them.
    """
    deadline = time.monotonic() + patience
    found = processes(submission_id)
    while found and time.monotonic() < deadline:
        time.sleep(0.2)
        found = processes(submission_id)
    killed = {process.pid: process.command for process in found}
    for signum in (signal.SIGTERM, signal.SIGKILL):
        for process in processes(submission_id):
            try:
                os.kill(process.pid, signum)
            except OSError:
                continue
        deadline = time.monotonic() + TERM_SECONDS
        while processes(submission_id) and time.monotonic() < deadline:
            time.sleep(0.1)
    removed = []
    known = {int(pid) for pid in pids} | set(killed)
    for path in SHM.glob("torch_*"):
        match = TORCH_SHM.match(path.name)
        if match and int(match[1]) in known and not Path("/proc", match[1]).exists():
            path.unlink(missing_ok=True)
            removed.append(path.name)
    left = [asdict(process) for process in processes(submission_id)]
    return {"killed": killed, "shm_removed": removed, "left": left, "gpu_processes": gpu_processes(known)}


def gpu_processes(pids: Iterable[int]) -> list[str]:
    """Processes of the job that still hold GPU memory, as nvidia-smi lists them."""
    if not shutil.which("nvidia-smi"):
        return []
    listed = run("nvidia-smi", "--query-compute-apps=pid,used_memory,gpu_uuid", "--format=csv,noheader")
    own = set(map(str, pids))
    return [line for line in listed.splitlines() if line.split(",")[0].strip() in own]
