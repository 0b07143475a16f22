# SPDX-License-Identifier: Apache-2.0
"""Evidence of one node, and the end of what a job left there.

The evidence is the job's processes with their stacks, devices, memory and Ray's logs, as files in the archive. All runs
on that node, in an actor of Ray or as a process of its own, and needs neither the head nor Ray.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ..archive.archive import JOB_VARIABLE
from ..hooks import redact, worker_secrets
from ..io.control_group import GROUPS

# The mask of files in an archive, which only the user of the nodes and its group may read.
UMASK = 0o027
# A longer text of evidence loses its middle.
MAX_FILE_BYTES = 1 << 20
MAX_LOG_BYTES = 256 << 10
MAX_LOG_FILES = 64
COMMAND_TIMEOUT_SECONDS = 15
# The maximum number of processes whose stacks are read.
MAX_STACKS = 64
RAY_LOGS = Path(os.environ.get("RAY_TMPDIR") or "/tmp", "ray/session_latest/logs")  # noqa: S108 - Ray's own directory
SHM = Path("/dev/shm")  # noqa: S108 - the kernel's own directory
# The time for Ray's workers to end after their job, and for processes to end after SIGTERM.
WORKER_EXIT_TIMEOUT_SECONDS = 8.0
TERM_TIMEOUT_SECONDS = 3.0
# torch names shared memory after its process (aten/src/ATen/MapAllocator.cpp, NewProcessWideShmHandle).
TORCH_SHM = re.compile(r"torch_(\d+)_")
# A line of a log about communication between GPUs or nodes.
NETWORK_LINE = re.compile(r"NCCL|RCCL|[Gg]loo|ProcessGroup|Watchdog")


@dataclass(frozen=True)
class Process:
    """A process as /proc shows it. state: such as "S (sleeping)"."""

    pid: int
    parent: int
    state: str
    memory_mib: int
    threads: int
    command: str


def clip(text: str, limit: int = MAX_FILE_BYTES) -> str:
    """The beginning and the end of a long text, with a note in place of the middle."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half} characters left out …]\n{text[-half:]}"


def command_output(*command: str, seconds: float = COMMAND_TIMEOUT_SECONDS) -> str:
    """The output of a command, or a note that it is not installed."""
    if not shutil.which(command[0]):
        return f"{command[0]} is not installed\n"
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


def process_environment(process: Path) -> dict[str, str]:
    """The environment that a process was started with; empty if it has ended or belongs to another user."""
    try:
        raw = (process / "environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    return dict(line.split("=", 1) for line in raw.split("\0") if "=" in line)


def job_processes(submission_id: str, proc: Path = Path("/proc")) -> list[Process]:
    """All processes of a job on this node: each has inherited the job's variable in its environment."""
    matching = []
    for path in proc.glob("[0-9]*"):
        if int(path.name) == os.getpid() or process_environment(path).get(JOB_VARIABLE) != submission_id:
            continue
        try:
            status = dict(line.split(":\t", 1) for line in (path / "status").read_text().splitlines() if ":\t" in line)
            # Ray's workers overwrite their command line and pad it.
            command = (path / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ").strip()
        except OSError:
            continue  # it has ended meanwhile
        if status["State"].startswith("Z"):
            continue  # ended, and not reaped by its parent yet
        memory = int(status.get("VmRSS", "0 kB").split()[0]) // 1024
        matching.append(
            Process(int(path.name), int(status["PPid"]), status["State"], memory, int(status["Threads"]), command)
        )
    return sorted(matching, key=lambda process: process.pid)


def dump_stacks(processes: Iterable[Process]) -> str:
    """The Python stacks of processes, taken without pausing them."""
    spy = shutil.which("py-spy") or shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if not spy:
        return "py-spy is not installed\n"
    pids = [process.pid for process in processes if "python" in process.command or process.command.startswith("ray::")]

    def dump(pid: int) -> str:
        try:
            return command_output(spy, "dump", "--nonblocking", "--pid", str(pid))
        except subprocess.TimeoutExpired:
            return f"Process {pid}: py-spy did not answer within {COMMAND_TIMEOUT_SECONDS} s\n"

    with ThreadPoolExecutor(4) as pool:
        return "\n".join(pool.map(dump, pids[:MAX_STACKS]))


def gpu_report() -> str:
    """The state of the accelerators, as reported by their vendor's tool."""
    for tool, arguments in (("nvidia-smi", ("-q",)), ("rocm-smi", ("--showallinfo",))):
        if shutil.which(tool):
            return command_output(tool) + "\n" + command_output(tool, *arguments)
    return "neither nvidia-smi nor rocm-smi is installed\n"


def memory_report() -> str:
    """The memory of the machine, and that of the container."""
    parts = [Path("/proc/meminfo").read_text()]
    for path in sorted((*GROUPS.glob("memory.*"), *GROUPS.glob("memory/memory.*_in_bytes"))):
        # Some of these files are write-only.
        with contextlib.suppress(OSError):
            parts.append(f"{path.name} {path.read_text()}")
    return "".join(parts)


def network_report() -> str:
    devices = Path("/proc/net/dev").read_text()
    return command_output("ip", "-brief", "address") + devices + command_output("ibdev2netdev")


def log_paths(job_ids: Iterable[str], since: float, logs: Path = RAY_LOGS) -> list[Path]:
    """Ray's logs of a job on this node, by Ray's ids of its attempts; without ids, those written since its start."""
    ids = "|".join(job_ids)
    regex = re.compile(rf"worker-\w+-(?:{ids})-\d+\.(?:out|err)|runtime_env_setup-(?:{ids})\.log") if ids else None
    paths = [logs / name for name in ("raylet.err", "raylet.out", "ray_process_exit.log")]
    for path in sorted(logs.glob("*")):
        hit = regex.fullmatch(path.name) if regex else path.name.startswith("worker-") and path.stat().st_mtime > since
        if hit:
            paths.append(path)
    return [path for path in paths if path.is_file() and path.stat().st_size][:MAX_LOG_FILES]


def read_tail(path: Path, size: int = MAX_LOG_BYTES) -> str:
    """The last lines of a file. Only whole ones: in a part of a line, a secret might not be recognised."""
    with path.open("rb") as file:
        begin = max(0, file.seek(0, os.SEEK_END) - size)
        file.seek(begin)
        data = file.read(size)
    first = data.find(b"\n") + 1 if begin else 0
    return data[first:].decode(errors="replace")


def package_versions() -> dict[str, str]:
    """The version of every package, by name."""
    versions = {dist.metadata["Name"]: dist.version for dist in importlib.metadata.distributions()}
    return {name: versions[name] for name in sorted(versions, key=str.lower)}


def collect(
    archive: str, directory: str, job_ids: Sequence[str], since: float, with_packages: bool
) -> list[dict[str, Any]]:
    """Write this node's evidence into `directory` below the archive; returns the entries for the index.

    If a source fails, a file with its error is written instead.
    job_ids: Ray's own ids of all attempts. since: the job's start, in seconds since the epoch.
    """
    root = Path(archive)
    redactor = redact.Redactor(worker_secrets.load(root).values())
    processes = job_processes(root.name)
    logs = log_paths(job_ids, since)
    sources: dict[str, Callable[[], str]] = {
        "processes.json": lambda: json.dumps([asdict(process) for process in processes], indent=1),
        "stacks.txt": lambda: dump_stacks(processes),
        "environment.json": lambda: json.dumps(
            {
                process.pid: redact.masked_environment(process_environment(Path("/proc", str(process.pid))), redactor)
                for process in processes
            },
            indent=1,
        ),
        "gpu.txt": gpu_report,
        "memory.txt": memory_report,
        "shm.txt": lambda: command_output("df", "-k", str(SHM)) + command_output("ls", "-lb", "--full-time", str(SHM)),
        "disk.txt": lambda: command_output("df", "-h"),
        "network.txt": network_report,
        "communication.txt": lambda: "\n".join(
            f"{path.name}: {line}" for path in logs for line in read_tail(path).split("\n") if NETWORK_LINE.search(line)
        ),
        **{f"logs/{path.name}": partial(read_tail, path) for path in logs},
    }
    if with_packages:
        sources["packages.txt"] = lambda: "".join(
            f"{name}=={version}\n" for name, version in package_versions().items()
        )
    return [write(root, f"{directory}/{name}", source, redactor) for name, source in sources.items()]


def write(archive: Path, name: str, source: Callable[[], str], redactor: redact.Redactor) -> dict[str, Any]:
    """Write one file of evidence, or its error in its place; returns the entry for the index."""
    entry: dict[str, Any] = {"file": name}
    try:
        text = redactor.mask_text(source())
    except Exception as error:  # no error of one source may prevent the others
        text = redactor.mask_text(f"{type(error).__name__}: {error}\n")
        entry = {"file": f"{name}.error", "error": text.strip()}
    shown = clip(text)
    target = archive / entry["file"]
    # The mask of this process may be another one, as in actors of Ray.
    before = os.umask(UMASK)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(shown, encoding="utf-8", errors="replace")
    finally:
        os.umask(before)
    return {**entry, "bytes": target.stat().st_size, **({"cut": True} if shown != text else {})}


def sweep_node(
    submission_id: str, pids: Iterable[int], patience: float = WORKER_EXIT_TIMEOUT_SECONDS
) -> dict[str, Any]:
    """End the processes that a job left on this node; returns what was ended and what remains.

    pids: the process ids of the job on this node as Ray knew them, after which shared memory is named.
    patience: the seconds in which the processes may end by themselves.
    """
    wait_until_gone(submission_id, patience)
    killed = {process.pid: process.command for process in job_processes(submission_id)}
    for signum in (signal.SIGTERM, signal.SIGKILL):
        for process in job_processes(submission_id):
            # The process may have ended meanwhile.
            with contextlib.suppress(OSError):
                os.kill(process.pid, signum)
        wait_until_gone(submission_id, TERM_TIMEOUT_SECONDS)
    job_pids = {int(pid) for pid in pids} | set(killed)
    return {
        "killed": killed,
        "shm_removed": remove_shared_memory(job_pids),
        "left": [asdict(process) for process in job_processes(submission_id)],
        "gpu_processes": gpu_processes(job_pids),
    }


def wait_until_gone(submission_id: str, seconds: float) -> None:
    """Wait until the job has no process on this node, for at most that time."""
    deadline = time.monotonic() + seconds
    while job_processes(submission_id) and time.monotonic() < deadline:
        time.sleep(0.1)


def remove_shared_memory(pids: set[int]) -> list[str]:
    """Remove torch's shared memory of those processes that have ended; returns the names of the files."""
    removed = []
    for path in SHM.glob("torch_*"):
        match = TORCH_SHM.match(path.name)
        if match and int(match[1]) in pids and has_ended(int(match[1])):
            path.unlink(missing_ok=True)
            removed.append(path.name)
    return removed


def has_ended(pid: int) -> bool:
    """Whether a process is gone, or a zombie, which holds no memory until its parent waits for it."""
    try:
        return Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").startswith("0 ")
    except OSError:
        return True


def gpu_processes(pids: Iterable[int]) -> list[str]:
    """The lines of nvidia-smi about those processes that still hold GPU memory."""
    if not shutil.which("nvidia-smi"):
        return []
    listed = command_output("nvidia-smi", "--query-compute-apps=pid,used_memory,gpu_uuid", "--format=csv,noheader")
    pid_texts = set(map(str, pids))
    return [line for line in listed.splitlines() if line.split(",")[0].strip() in pid_texts]
