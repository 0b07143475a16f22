# SPDX-License-Identifier: GPL-3.0-or-later
"""Probe a machine: GPUs, HCAs, memory, mounts, container engine and ports, in one call.

`Probe` runs the programs and reads the files; the parsers are pure. Tests give it recorded output and trees.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import stat
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Thread

from ..argus.common.shared_root import JOBS_DIR
from ..network.interfaces import Hca, hcas_of_sysfs, parse_ibdev2netdev, read_interfaces, read_text, with_sysfs
from .devices import INFINIBAND, DeviceFile, read_devices, read_gpus
from .engine import (
    CLUSTER_LABEL,
    DOCKER,
    NO_ENGINE,
    NOT_INSTALLED,
    PODMAN,
    Container,
    Engine,
    EngineError,
    EngineStatus,
    Image,
    error_message,
    only_absence,
    parse_containers,
    parse_engine_info,
    parse_image,
    run_program,
    with_systemd,
    with_tun,
)
from .hardware import (
    NVIDIA_SMI_QUERY,
    Gpu,
    Mount,
    PathState,
    Xid,
    mount_of,
    parse_ephemeral_range,
    parse_listeners,
    parse_meminfo,
    parse_mountinfo,
    parse_nvidia_gpus,
    parse_reserved_ports,
    parse_xids,
    read_amd_gpus,
)
from .machine import Machine
from .system import SOFTWARE_PROGRAM, Software, parse_software, read_system, with_origin

# The packages that community.docker needs in the Python that runs its modules.
PACKAGES = ("requests",)
# nvidia-smi without persistence mode initialises every GPU first, which takes seconds on a machine with eight.
COMMAND_SECONDS = 30.0
# A dead NFS server blocks stat() for ever; a preflight check has to report that instead of hanging as well.
PATH_SECONDS = 5.0
# The disk that fills up where there is no engine: Ray's sessions, logs and spilled objects.
RAY_DISK = "/tmp"  # noqa: S108
NET = "/proc/sys/net/ipv4"
KERNEL_LOG = (("dmesg",), ("journalctl", "--dmesg", "--quiet", "--no-pager", "--output=cat"))
PROXIES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy", "no_proxy")
Run = Callable[[Sequence[str]], "tuple[int, str, str]"]


def run_command(argv: Sequence[str]) -> tuple[int, str, str]:
    return run_program(argv, COMMAND_SECONDS)


class Probe:
    """Reads a machine. run starts programs; root is the directory that holds /proc, /sys, /dev and the paths."""

    def __init__(self, run: Run = run_command, root: str | Path = "/", path_seconds: float = PATH_SECONDS) -> None:
        self._run = run
        self._root = Path(root)
        self._path_seconds = path_seconds

    def machine(
        self,
        cluster: str,
        engine: str = DOCKER,
        names: Sequence[str] = (),
        images: Sequence[str] = (),
        paths: Sequence[str] = (),
        python: str = "",
    ) -> Machine:
        """names, images, paths: of containers, images and directories to report besides those of the cluster.

        python: that of a node without a container.
        """
        # Each call to the engine takes 20 to 100 ms and none depends on another.
        with ThreadPoolExecutor(max_workers=8) as pool:
            gpus_future, hcas_future = pool.submit(self.gpus), pool.submit(self.hcas)
            software_future = pool.submit(self.software, python)
            engine_future, paths_future = pool.submit(self.engine, engine), pool.submit(self.paths, paths)
            containers_future = pool.submit(self.containers, engine, cluster, names)
            image_futures = {name: pool.submit(self.image, engine, name) for name in images}
            state, containers = engine_future.result(), {}
            inspected: dict[str, Image | None] = {}
            try:
                containers = containers_future.result()
                inspected = {name: future.result() for name, future in image_futures.items()}
            except EngineError as error:
                containers = {}
                # When the engine itself does not answer, its own error explains more than that of a later call.
                if state.status == EngineStatus.OK:
                    state = replace(state, status=EngineStatus.FAILED, error=str(error))
            disk = self._disk(state)
        gpus, gpus_error = gpus_future.result()
        xids, kernel_log_error = self.xids() if gpus or gpus_error else ([], "")
        return Machine(
            cluster=cluster,
            python=sys.executable,
            missing_packages=[name for name in PACKAGES if importlib.util.find_spec(name) is None],
            gpus=gpus,
            gpus_error=gpus_error,
            hcas=hcas_future.result(),
            mounts=paths_future.result(),
            disk=disk,
            memory_bytes=self.memory(),
            shm_bytes=self.shm_bytes(),
            uid=os.geteuid(),
            gid=os.getegid(),
            user=user_name(os.geteuid()),
            engine=state,
            containers=containers,
            images=inspected,
            ports_in_use=self.listeners(),
            ephemeral_ports=parse_ephemeral_range(read_text(self._at(f"{NET}/ip_local_port_range"))),
            reserved_ports=parse_reserved_ports(read_text(self._at(f"{NET}/ip_local_reserved_ports"))),
            rdma_devices=tuple(self.rdma_devices()),
            rocm_gpus=tuple(rocm_gpus := read_gpus(self._root)),
            rocm_devices=tuple(read_devices(self._root, rocm_gpus)),
            amd_gpus=tuple(read_amd_gpus(self._root)),
            xids=tuple(xids),
            kernel_log_error=kernel_log_error,
            system=read_system(self._root),
            software=software_future.result(),
            interfaces=tuple(read_interfaces(self._root)),
            proxies=proxies_of(os.environ),
        )

    def gpus(self) -> tuple[list[Gpu], str | None]:
        """Return the GPUs and the error of nvidia-smi; without nvidia-smi, no GPUs and no error."""
        code, out, err = self._run(NVIDIA_SMI_QUERY)
        if code == NOT_INSTALLED:
            return [], None
        # A driver that does not work prints its error on stdout.
        gpus, error = parse_nvidia_gpus(out) if out.strip() else ([], "")
        gpus = [replace(gpu, processes=tuple(with_origin(self._root, proc) for proc in gpu.processes)) for gpu in gpus]
        if code:
            return gpus, " ".join([*filter(None, [error]), *err.split()]) or f"exit code {code} without a message"
        return gpus, error or None

    def xids(self) -> tuple[list[Xid], str]:
        """Return the errors of NVIDIA's driver in the kernel log, and why the log cannot be read."""
        problems = []
        for argv in KERNEL_LOG:
            code, out, err = self._run(argv)
            # Without rights journalctl ends with 0 and an empty log.
            if code == 0 and out.strip():
                return parse_xids(out), ""
            problems.append(f"{argv[0]}: {' '.join(err.split())[:200] or f'exit code {code} without a message'}")
        return [], "; ".join(problems)

    def software(self, python: str) -> Software | None:
        return parse_software(python, *self._run([python, "-c", SOFTWARE_PROGRAM])) if python else None

    def hcas(self) -> list[Hca]:
        """Return the ports that ibdev2netdev lists; on InfiniBand without IPoIB it lists none, and sysfs has them."""
        code, out, _err = self._run(["ibdev2netdev"])
        listed = [] if code else parse_ibdev2netdev(out)
        return [with_sysfs(port, self._root) for port in listed] or hcas_of_sysfs(self._root)

    def rdma_devices(self) -> list[DeviceFile]:
        """Return the devices that NCCL opens for data: one for each HCA whose driver is complete."""
        files = sorted(self._at(INFINIBAND).glob("uverbs*"))
        return [DeviceFile.of(self._root, f"{INFINIBAND}/{file.name}") for file in files]

    def listeners(self) -> list[int]:
        tables = (read_text(self._at(f"/proc/net/{name}")) for name in ("tcp", "tcp6"))
        return sorted(set().union(*map(parse_listeners, tables)))

    def memory(self) -> int:
        """Return the bytes that this session may use."""
        total = parse_meminfo(read_text(self._at("/proc/meminfo"))).get("MemTotal", 0)
        # In a container of a compute platform, /proc/meminfo describes the machine around it.
        files = ("memory.max", "memory/memory.limit_in_bytes")
        limits = (read_text(self._at("/sys/fs/cgroup") / name) for name in files)
        return min([total, *(int(limit) for limit in limits if limit.isdigit())])

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
        threads = [(path, Thread(target=ask, args=(path,), daemon=True)) for path in paths]
        for _path, thread in threads:
            thread.start()
        deadline = time.monotonic() + self._path_seconds
        for _path, thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return [answers.get(path) or self._silent(path) for path, _thread in threads]

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
        status = self._at(path).stat() if exists else None
        return PathState(
            path=path,
            exists=exists,
            **vars(mount),
            free_bytes=space.f_bavail * space.f_frsize,
            # On NFS the server answers, which applies root_squash.
            writable=os.access(nearest, os.W_OK | os.X_OK),
            error=error,
            mode=stat.S_IMODE(status.st_mode) if status else None,
            owner=f"{status.st_uid}:{status.st_gid}" if status else None,
            archives_owner=self._archives_owner(path) if exists else None,
        )

    def _archives_owner(self, path: str) -> str | None:
        try:
            # No link is followed: a job may have replaced the directory.
            status = (self._at(path) / JOBS_DIR).lstat()
        except OSError:
            return None
        return f"{status.st_uid}:{status.st_gid}"

    def _silent(self, path: str) -> PathState:
        mount = self._mount(path)
        error = f"{mount.source or path} does not answer within {self._path_seconds:g} s"
        return PathState(path, False, mount.mount_point, mount.fstype, mount.source, mount.options, 0, False, error)

    def _mount(self, path: str) -> Mount:
        mounts = parse_mountinfo(read_text(self._at("/proc/self/mountinfo")))
        return mount_of(path, mounts) or Mount("", "", "", [])

    def engine(self, command: str) -> Engine:
        if command == NO_ENGINE:
            return Engine(NO_ENGINE, EngineStatus.NONE)
        engine, cdi = parse_engine_info(command, *self._run([command, "info", "--format", "{{json .}}"]))
        if engine.status == EngineStatus.OK and (self._cdi_lists_nvidia(cdi) or self._has_nvidia_hook(engine)):
            engine = replace(engine, nvidia=True)
        if engine.status == EngineStatus.OK and engine.name == PODMAN:
            engine = with_systemd(engine, self._root, user_name(os.geteuid()), str(Path.home()))
            return with_tun(engine, self._root)
        return engine

    def _disk(self, engine: Engine) -> PathState | None:
        """Return the state of the engine's data directory; None when the engine does not answer."""
        disk = RAY_DISK if engine.status == EngineStatus.NONE else engine.root_dir
        return self.paths([disk])[0] if disk else None

    def _cdi_lists_nvidia(self, directories: Iterable[str]) -> bool:
        """Read the files of the container device interface, which name the devices that an engine may give out."""
        specifications = (entry for name in directories for entry in self._at(name).glob("*") if entry.is_file())
        return any("nvidia.com/gpu" in read_text(entry) for entry in specifications)

    def _has_nvidia_hook(self, engine: Engine) -> bool:
        # "docker run --gpus" needs no registered runtime, only this program.
        return engine.name == DOCKER and self._at("/usr/bin/nvidia-container-runtime-hook").exists()

    def containers(self, engine: str, cluster: str, names: Sequence[str]) -> dict[str, Container]:
        """Return the containers of the cluster in any state, and any other container that has one of the names."""
        listed = self._ask(engine, "ps", "-aq", "--no-trunc", "--filter", f"label={CLUSTER_LABEL}={cluster}")
        ids = listed.split()
        if not ids and not names:
            return {}
        # A container may be removed between the two calls.
        containers = parse_containers(self._ask(engine, "container", "inspect", *ids, *names, may_be_absent=True))
        # "inspect" also finds a container by the beginning of its id.
        return {name: container for name, container in containers.items() if container.id in ids or name in names}

    def image(self, engine: str, reference: str) -> Image | None:
        return parse_image(self._ask(engine, "image", "inspect", reference, may_be_absent=True))

    def _ask(self, engine: str, *arguments: str, may_be_absent: bool = False) -> str:
        if engine == NO_ENGINE:
            return ""
        code, out, err = self._run([engine, *arguments])
        if code and not (may_be_absent and only_absence(err)):
            problem = f"failed with exit code {code}: {error_message(out, err)}"
            raise EngineError(f'"{engine} {" ".join(arguments)}" {problem}')
        return out

    def _at(self, path: str) -> Path:
        return self._root / path.lstrip("/")


def proxies_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of proxies, without the user and the password of a URL."""
    variables = {name.lower(): value for name, value in environment.items() if value}
    return {name: re.sub(r"[^/,]*@", "", variables[name]) for name in PROXIES if name in variables}


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
