# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Probe a machine: GPUs, HCAs, memory, mounts, container engine and ports, in one call.

`Probe` runs the programs and reads the files; the parsers are pure. Tests give it recorded output and trees.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import pwd
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Thread

from ..shared_root import JOBS
from .engine import (
    CLUSTER_LABEL,
    NO_ENGINE,
    NOT_INSTALLED,
    TIMED_OUT,
    Container,
    Engine,
    EngineError,
    EngineStatus,
    Image,
    message,
    only_absence,
    parse_containers,
    parse_engine_info,
    parse_image,
)
from .hardware import GPU_QUERY, Gpu, Hca, parse_gpus, parse_ibdev2netdev, parse_meminfo
from .machine import Machine
from .mounts import Mount, PathState, mount_of, parse_mountinfo

# The packages that community.docker needs in the Python that runs its modules.
PACKAGES = ("requests",)
# nvidia-smi without persistence mode initialises every GPU first, which takes seconds on a machine with eight.
COMMAND_SECONDS = 30.0
# A dead NFS server blocks stat() for ever; a preflight check has to report that instead of hanging as well.
PATH_SECONDS = 5.0
# The disk that fills up where there is no engine: Ray's sessions, logs and spilled objects.
RAY_DISK = "/tmp"  # noqa: S108
Run = Callable[[Sequence[str]], "tuple[int, str, str]"]


def run_command(argv: Sequence[str]) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr; the code is 127 when the program does not exist, 124 after a timeout."""
    # The PATH of a session over SSH often lacks the sbin directories, where distributions put ibdev2netdev.
    path = os.environ.get("PATH", os.defpath) + ":/usr/local/sbin:/usr/sbin:/sbin"
    environment = {**os.environ, "PATH": path, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            argv,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        return NOT_INSTALLED, "", f"{argv[0]}: not found"
    except PermissionError as error:
        return 126, "", str(error)
    except subprocess.TimeoutExpired:
        return TIMED_OUT, "", f"no answer within {COMMAND_SECONDS:.0f} s"
    return done.returncode, done.stdout, done.stderr


@dataclass(frozen=True)
class Question:
    """What to report of a machine in addition to what is always reported."""

    cluster: str
    engine: str = "docker"
    names: Sequence[str] = ()
    images: Sequence[str] = ()
    paths: Sequence[str] = ()
    ports: Sequence[int] = ()


@dataclass(frozen=True)
class _Stock:
    """The containers and images that the engine holds."""

    containers: dict[str, Container] = field(default_factory=dict)
    images: dict[str, Image | None] = field(default_factory=dict)


class Probe:
    """Reads a machine. run starts programs; root is the directory that holds /proc, /sys, /dev and the paths."""

    def __init__(self, run: Run = run_command, root: str | Path = "/", path_seconds: float = PATH_SECONDS) -> None:
        self._run = run
        self._root = Path(root)
        self._path_seconds = path_seconds

    def machine(self, question: Question) -> Machine:
        # Each call to the engine takes 20 to 100 ms and none depends on another.
        with ThreadPoolExecutor(max_workers=8) as pool:
            asked_gpus = pool.submit(self.gpus)
            asked_hcas = pool.submit(self.hcas)
            asked_engine = pool.submit(self.engine, question.engine)
            asked_stock = pool.submit(self._stock, question)
            asked_paths = pool.submit(self.paths, question.paths)
            engine = asked_engine.result()
            stock = _Stock()
            try:
                stock = asked_stock.result()
            except EngineError as error:
                # When the engine itself does not answer, its own error explains more than that of a later call.
                if engine.status == EngineStatus.OK:
                    engine = replace(engine, status=EngineStatus.FAILED, error=str(error))
            disk = self._disk(engine)
        gpus, gpus_error = asked_gpus.result()
        hcas, hca_source = asked_hcas.result()
        memory, available = self.memory()
        return Machine(
            cluster=question.cluster,
            python=sys.executable,
            missing_packages=[name for name in PACKAGES if importlib.util.find_spec(name) is None],
            gpus=gpus,
            gpus_error=gpus_error,
            hcas=hcas,
            hca_source=hca_source,
            mounts=asked_paths.result(),
            disk=disk,
            memory_bytes=memory,
            memory_available_bytes=available,
            shm_bytes=self.shm_bytes(),
            cpus=len(os.sched_getaffinity(0)),
            uid=os.geteuid(),
            gid=os.getegid(),
            user=_user_name(os.geteuid()),
            engine=engine,
            containers=stock.containers,
            images=stock.images,
            ports_in_use=[port for port in question.ports if port_in_use(port)],
        )

    def gpus(self) -> tuple[list[Gpu], str | None]:
        """Return the GPUs and the error of nvidia-smi; without nvidia-smi, no GPUs and no error."""
        code, out, err = self._run(GPU_QUERY)
        if code == NOT_INSTALLED:
            return [], None
        gpus, other_lines = parse_gpus(out)
        # A driver that does not work prints its error on stdout, where the rows are expected.
        error = " ".join(other_lines)
        if code:
            return gpus, " ".join([*other_lines, *err.split()]) or f"exit code {code} without a message"
        return gpus, error or None

    def hcas(self) -> tuple[list[Hca], str]:
        """Return the ports and their source: "ibdev2netdev", "sysfs" or "none"."""
        code, out, _err = self._run(["ibdev2netdev"])
        ports = [] if code else parse_ibdev2netdev(out)
        if ports:
            return ports, "ibdev2netdev"
        # It lists only ports with a network interface: on InfiniBand without IPoIB it prints nothing.
        ports = self._hcas_of_sysfs()
        return ports, "sysfs" if ports else "none"

    def _hcas_of_sysfs(self) -> list[Hca]:
        ports = []
        for port in sorted(self._at("/sys/class/infiniband").glob("*/ports/*")):
            device = port.parent.parent
            # Such as "4: ACTIVE"; a port in "2: INIT" has a cable, but no subnet manager.
            state = "up" if self._read(port / "state").endswith("ACTIVE") else "down"
            ports.append(Hca(device.name, int(port.name), self._netdev(device, port), state))
        return ports

    def _netdev(self, device: Path, port: Path) -> str | None:
        # With RoCE the table of GIDs has the name; on InfiniBand reading it fails with EINVAL.
        names = (self._read(entry) for entry in sorted((port / "gid_attrs" / "ndevs").glob("*")))
        known = next(filter(None, names), None)
        if known:
            return known
        interfaces = sorted((device / "device" / "net").glob("*"))
        # One PCI function with two ports has the interfaces of both; dev_port counts from 0.
        of_port = [entry for entry in interfaces if self._read(entry / "dev_port") == str(int(port.name) - 1)]
        if len(interfaces) == 1:
            of_port = interfaces
        return of_port[0].name if of_port else None

    def memory(self) -> tuple[int, int]:
        """Return the bytes that this session may use, and how many of them are available."""
        known = parse_meminfo(self._read(self._at("/proc/meminfo")))
        total, available = known.get("MemTotal", 0), known.get("MemAvailable", 0)
        # In a container of a compute platform, /proc/meminfo describes the machine around it.
        for name in ("memory.max", "memory/memory.limit_in_bytes"):
            limit = self._read(self._at("/sys/fs/cgroup") / name)
            if limit.isdigit():
                total, available = min(total, int(limit)), min(available, int(limit))
        return total, available

    def shm_bytes(self) -> int:
        try:
            space = os.statvfs(self._at("/dev/shm"))  # noqa: S108
        except OSError:
            return 0
        return space.f_blocks * space.f_frsize

    def paths(self, paths: Iterable[str]) -> list[PathState]:
        """Return the state of each path; a path that does not answer in time has an error."""
        answers: dict[str, PathState] = {}

        def ask(path: str) -> None:
            answers[path] = self._path(path)

        # Daemon threads: a thread that hangs in the kernel must not keep the interpreter from exiting.
        asked = [(path, Thread(target=ask, args=(path,), daemon=True)) for path in paths]
        for _path, thread in asked:
            thread.start()
        deadline = time.monotonic() + self._path_seconds
        for _path, thread in asked:
            thread.join(max(0.0, deadline - time.monotonic()))
        return [answers.get(path) or self._silent(path) for path, _thread in asked]

    def _path(self, path: str) -> PathState:
        nearest = self._at(path)
        exists, error = True, None
        while True:
            try:
                space = os.statvfs(nearest)
                break
            except (FileNotFoundError, NotADirectoryError):
                exists, nearest = False, nearest.parent
            except OSError as problem:
                # Permission, or a stale handle of a file server.
                exists, error, nearest = False, problem.strerror or str(problem), nearest.parent
        root = os.path.realpath(self._root)
        resolved = "/" + os.path.relpath(os.path.realpath(nearest), root)
        # Read after statvfs(), which is what makes an automounter mount it.
        mount = self._mount("/" if resolved == "/." else resolved)
        return PathState(
            path=path,
            exists=exists,
            mount_point=mount.mount_point,
            fstype=mount.fstype,
            source=mount.source,
            options=mount.options,
            free_bytes=space.f_bavail * space.f_frsize,
            total_bytes=space.f_blocks * space.f_frsize,
            # On NFS the server answers, which applies root_squash.
            writable=os.access(nearest, os.W_OK | os.X_OK),
            error=error,
            mode=stat.S_IMODE(self._at(path).stat().st_mode) if exists else None,
            archives_owner=self._archives_owner(path) if exists else None,
        )

    def _archives_owner(self, path: str) -> str | None:
        try:
            # Not of what a link leads to: a job may have replaced the directory.
            there = (self._at(path) / JOBS).lstat()
        except OSError:
            return None
        return f"{there.st_uid}:{there.st_gid}"

    def _silent(self, path: str) -> PathState:
        mount = self._mount(path)
        error = f"{mount.source or path} does not answer within {self._path_seconds:g} s"
        return PathState(path, False, mount.mount_point, mount.fstype, mount.source, mount.options, 0, 0, False, error)

    def _mount(self, path: str) -> Mount:
        mounts = parse_mountinfo(self._read(self._at("/proc/self/mountinfo")))
        return mount_of(path, mounts) or Mount("", "", "", [])

    def engine(self, command: str) -> Engine:
        if command == NO_ENGINE:
            return Engine(NO_ENGINE, EngineStatus.NONE)
        engine, cdi = parse_engine_info(command, *self._run([command, "info", "--format", "{{json .}}"]))
        if engine.status == EngineStatus.OK and (self._cdi_lists_nvidia(cdi) or self._has_nvidia_hook(engine)):
            return replace(engine, nvidia=True)
        return engine

    def _disk(self, engine: Engine) -> PathState | None:
        """Return the state of the engine's data directory; None when the engine does not answer."""
        disk = RAY_DISK if engine.status == EngineStatus.NONE else engine.root_dir
        return self.paths([disk])[0] if disk else None

    def _cdi_lists_nvidia(self, directories: Iterable[str]) -> bool:
        """Read the files of the container device interface, which name the devices that an engine may give out."""
        specifications = (entry for name in directories for entry in self._at(name).glob("*") if entry.is_file())
        return any("nvidia.com/gpu" in self._read(entry) for entry in specifications)

    def _has_nvidia_hook(self, engine: Engine) -> bool:
        # "docker run --gpus" needs no registered runtime, only this program.
        return engine.name == "docker" and self._at("/usr/bin/nvidia-container-runtime-hook").exists()

    def _stock(self, question: Question) -> _Stock:
        if question.engine == NO_ENGINE:
            return _Stock(images=dict.fromkeys(question.images))
        with ThreadPoolExecutor(max_workers=8) as pool:
            containers = pool.submit(self.containers, question.engine, question.cluster, question.names)
            images = pool.map(lambda reference: self.image(question.engine, reference), question.images)
            found = dict(zip(question.images, images))  # noqa: B905 - strict= came with Python 3.10
            return _Stock(containers.result(), found)

    def containers(self, engine: str, cluster: str, names: Sequence[str]) -> dict[str, Container]:
        """Return the containers of the cluster in any state, and any other container that has one of the names."""
        listed = self._ask(engine, "ps", "-aq", "--no-trunc", "--filter", f"label={CLUSTER_LABEL}={cluster}")
        ids = listed.split()
        if not ids and not names:
            return {}
        # A container may be removed between the two calls.
        found = parse_containers(self._ask(engine, "container", "inspect", *ids, *names, may_be_absent=True))
        # "inspect" also finds a container by the beginning of its id.
        return {name: container for name, container in found.items() if container.id in ids or name in names}

    def image(self, engine: str, reference: str) -> Image | None:
        return parse_image(self._ask(engine, "image", "inspect", reference, may_be_absent=True))

    def _ask(self, engine: str, *arguments: str, may_be_absent: bool = False) -> str:
        code, out, err = self._run([engine, *arguments])
        if code and not (may_be_absent and only_absence(err)):
            raise EngineError(f'"{engine} {" ".join(arguments)}" failed with exit code {code}: {message(out, err)}')
        return out

    def _at(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    @staticmethod
    def _read(path: Path) -> str:
        """Return the stripped text, or nothing for a file that cannot be read, as parts of sysfs cannot."""
        try:
            return path.read_text(errors="replace").strip()
        except OSError:
            return ""


def port_in_use(port: int, address: str = "127.0.0.1") -> bool:
    """Whether a process listens on the port; connections in TIME_WAIT do not count."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
