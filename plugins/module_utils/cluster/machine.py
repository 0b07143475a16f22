# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a machine is: its GPUs, HCAs, memory, mounts and container engine, read in one go.

Parsers are pure functions over what the tools print. Probe does the reading; tests give it recorded trees.
"""

from __future__ import annotations

import errno
import importlib.util
import os
import pwd
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

from .engine import (
    _ABSENT,
    FAILED,
    NONE,
    NOT_INSTALLED,
    OK,
    TIMED_OUT,
    Container,
    Engine,
    EngineError,
    _message,
    parse_containers,
    parse_engine_info,
    parse_image,
)
from .hardware import GPU_QUERY, Gpu, Hca, parse_gpus, parse_ibdev2netdev, parse_meminfo
from .mounts import Mount, PathState, mount_of, parse_mountinfo

CLUSTER_LABEL = "argus.verl.cluster"
# What community.docker needs of the Python that its modules run with.
PACKAGES = ("requests",)
# nvidia-smi without persistence mode initialises every GPU first, which takes seconds on a machine with eight.
COMMAND_SECONDS = 30.0
# A dead NFS server blocks stat() for ever; a preflight check must say so instead of hanging with it.
PATH_SECONDS = 5.0
Run = Callable[[Sequence[str]], tuple[int, str, str]]


def run_command(argv: Sequence[str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr; exit code 127 when there is no such program, 124 when it took too long."""
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
    """What is asked of a machine, apart from what is always told."""

    cluster: str
    engine: str = "docker"
    names: Sequence[str] = ()
    images: Sequence[str] = ()
    paths: Sequence[str] = ()
    ports: Sequence[int] = ()


@dataclass
class _Stock:
    """What the engine holds."""

    containers: dict[str, Container] = field(default_factory=dict)
    images: dict[str, dict[str, Any] | None] = field(default_factory=dict)


class Probe:
    """Reads a machine. run starts programs; root is where /proc, /sys, /dev and the asked paths are found."""

    def __init__(self, run: Run = run_command, root: str | Path = "/", path_seconds: float = PATH_SECONDS) -> None:
        self._run = run
        self._root = Path(root)
        self._path_seconds = path_seconds

    def machine(self, question: Question) -> dict[str, Any]:
        """Everything, as plain data for Ansible."""
        # Each call to the engine takes 20 to 100 ms and none depends on another.
        with ThreadPoolExecutor(max_workers=8) as pool:
            asked_gpus = pool.submit(self.gpus)
            asked_hcas = pool.submit(self.hcas)
            asked_engine = pool.submit(self.engine, question.engine)
            asked_stock = pool.submit(self._stock, question)
            asked_paths = pool.submit(self.paths, question.paths)
            gpus, gpus_error = asked_gpus.result()
            hcas, hca_source = asked_hcas.result()
            engine = asked_engine.result()
            stock = _Stock()
            try:
                stock = asked_stock.result()
            except EngineError as error:
                # When the engine itself does not answer, that is what matters, and "info" said it better.
                if engine.status == OK:
                    engine = Engine(engine.name, FAILED, engine.version, str(error), engine.root_dir, engine.nvidia)
            # Without an engine the disk that fills up is the one of Ray's sessions, logs and spilled objects.
            disk = "/tmp" if engine.status == NONE else engine.root_dir  # noqa: S108
            disk_state = next(iter(self.paths([disk])), None) if disk else None
            mounts = asked_paths.result()
        memory, available = self.memory()
        return {
            "cluster": question.cluster,
            "python": sys.executable,
            "missing_packages": [name for name in PACKAGES if importlib.util.find_spec(name) is None],
            "gpus": [asdict(gpu) for gpu in gpus],
            "gpus_error": gpus_error,
            "hcas": [asdict(hca) for hca in hcas],
            "hca_source": hca_source,
            "mounts": [asdict(mount) for mount in mounts],
            "disk": asdict(disk_state) if disk_state else None,
            "memory_bytes": memory,
            "memory_available_bytes": available,
            "shm_bytes": self.shm_bytes(),
            "cpus": len(os.sched_getaffinity(0)),
            "uid": os.geteuid(),
            "gid": os.getegid(),
            "user": _user_name(os.geteuid()),
            "engine": asdict(engine),
            "containers": {name: asdict(container) for name, container in stock.containers.items()},
            "images": stock.images,
            "ports_in_use": [port for port in question.ports if port_in_use(port)],
        }

    def gpus(self) -> tuple[list[Gpu], str | None]:
        """The GPUs, and what nvidia-smi complained about; without nvidia-smi none and no complaint."""
        code, out, err = self._run(GPU_QUERY)
        if code == NOT_INSTALLED:
            return [], None
        gpus, strays = parse_gpus(out)
        # The complaint of a driver that does not work stands on stdout, where the rows are expected.
        complaint = " ".join([*strays, *err.split()])
        if code:
            return gpus, complaint or f"exit code {code} without a message"
        return gpus, " ".join(strays) or None

    def hcas(self) -> tuple[list[Hca], str]:
        """The ports, and who told: "ibdev2netdev", "sysfs" or "none"."""
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
        # With RoCE the table of GIDs knows; on InfiniBand reading it gives EINVAL.
        names = (self._read(entry) for entry in sorted((port / "gid_attrs" / "ndevs").glob("*")))
        known = next(filter(None, names), None)
        if known:
            return known
        interfaces = sorted((device / "device" / "net").glob("*"))
        # One PCI function with two ports has the interfaces of both; dev_port counts from 0.
        mine = [entry for entry in interfaces if self._read(entry / "dev_port") == str(int(port.name) - 1)]
        if len(interfaces) == 1:
            mine = interfaces
        return mine[0].name if mine else None

    def memory(self) -> tuple[int, int]:
        """Bytes that this session may use, and those of them that are available."""
        known = parse_meminfo(self._read(self._at("/proc/meminfo")))
        total, available = known.get("MemTotal", 0), known.get("MemAvailable", 0)
        # In a container made by a compute platform /proc/meminfo tells of the machine around it.
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
        answers: dict[str, PathState] = {}

        def ask(path: str) -> None:
            answers[path] = self._path(path)

        # Daemon threads: one that hangs in the kernel must not keep the interpreter from ending.
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
            # On NFS this asks the server, which knows of root_squash.
            writable=os.access(nearest, os.W_OK | os.X_OK),
            error=error,
        )

    def _silent(self, path: str) -> PathState:
        mount = self._mount(path)
        error = f"{mount.source or path} does not answer within {self._path_seconds:g} s"
        return PathState(path, False, mount.mount_point, mount.fstype, mount.source, mount.options, 0, 0, False, error)

    def _mount(self, path: str) -> Mount:
        mounts = parse_mountinfo(self._read(self._at("/proc/self/mountinfo")))
        return mount_of(path, mounts) or Mount("", "", "", [])

    def engine(self, command: str) -> Engine:
        if command == NONE:
            return Engine(NONE, NONE)
        engine, cdi = parse_engine_info(command, *self._run([command, "info", "--format", "{{json .}}"]))
        if engine.status == OK and not engine.nvidia and (self._cdi_knows_nvidia(cdi) or self._has_nvidia_hook(engine)):
            return Engine(engine.name, OK, engine.version, None, engine.root_dir, nvidia=True)
        return engine

    def _cdi_knows_nvidia(self, directories: Iterable[str]) -> bool:
        """The container device interface: files that name the devices which an engine may hand out."""
        specifications = (entry for name in directories for entry in self._at(name).glob("*") if entry.is_file())
        return any("nvidia.com/gpu" in self._read(entry) for entry in specifications)

    def _has_nvidia_hook(self, engine: Engine) -> bool:
        # "docker run --gpus" needs no registered runtime, only this program.
        return engine.name == "docker" and self._at("/usr/bin/nvidia-container-runtime-hook").exists()

    def _stock(self, question: Question) -> _Stock:
        if question.engine == NONE:
            return _Stock(images=dict.fromkeys(question.images))
        with ThreadPoolExecutor(max_workers=8) as pool:
            containers = pool.submit(self.containers, question.engine, question.cluster, question.names)
            images = pool.map(lambda reference: self.image(question.engine, reference), question.images)
            found = dict(zip(question.images, images))  # noqa: B905 - strict= came with Python 3.10
            return _Stock(containers.result(), found)

    def containers(self, engine: str, cluster: str, names: Sequence[str]) -> dict[str, Container]:
        """Those of the cluster in any state, and whoever else holds one of the names."""
        listed = self._ask(engine, "ps", "-aq", "--no-trunc", "--filter", f"label={CLUSTER_LABEL}={cluster}")
        ids = listed.split()
        if not ids and not names:
            return {}
        # A container may go between the two calls.
        found = parse_containers(self._ask(engine, "container", "inspect", *ids, *names, may_be_absent=True))
        # "inspect" takes the beginning of an id for a name.
        return {name: container for name, container in found.items() if container.id in ids or name in names}

    def image(self, engine: str, reference: str) -> dict[str, Any] | None:
        return parse_image(self._ask(engine, "image", "inspect", reference, may_be_absent=True))

    def _ask(self, engine: str, *arguments: str, may_be_absent: bool = False) -> str:
        code, out, err = self._run([engine, *arguments])
        # Warnings, of the client's own configuration for example, stand on stderr as well.
        problems = [line for line in err.splitlines() if line.lower().startswith("error")]
        if code and not (may_be_absent and problems and all(map(_ABSENT.search, problems))):
            raise EngineError(f'"{engine} {" ".join(arguments)}" failed with exit code {code}: {_message(out, err)}')
        return out

    def _at(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    @staticmethod
    def _read(path: Path) -> str:
        """The text without blanks around it; empty when it cannot be read, as parts of sysfs cannot."""
        try:
            return path.read_text(errors="replace").strip()
        except OSError:
            return ""


def port_in_use(port: int, address: str = "127.0.0.1") -> bool:
    """Whether somebody listens on the port; connections in TIME_WAIT do not count."""
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
