# SPDX-License-Identifier: GPL-3.0-or-later
"""Probes a machine: GPUs, HCAs, memory, paths, container engine and ports, in one call.

`Probe` runs the programs and reads the files, and gives their text to the parsers of this package. Tests replace the
programs by recorded output, and the root directory by a tree of their own.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from ..network.interfaces import Hca, hcas_of_sysfs, parse_ibdev2netdev, read_interfaces, read_text, with_sysfs
from .devices import read_amd_device_files, read_rdma_devices, read_render_devices
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
    Run,
    error_message,
    parse_containers,
    parse_engine_info,
    parse_image,
    reports_only_absence,
    run_command,
    with_systemd,
    with_tun,
)
from .gpus import NVIDIA_SMI_QUERY, Gpu, Xid, parse_nvidia_gpus, parse_xids, read_amd_gpus
from .machine import Machine
from .paths import PathState, read_paths
from .system import (
    SOFTWARE_PROGRAM,
    Software,
    parse_ephemeral_range,
    parse_listeners,
    parse_meminfo,
    parse_reserved_ports,
    parse_software,
    read_system,
    user_name,
    with_origin,
)

# The packages that community.docker needs in the Python that runs its modules on the machine.
PACKAGES = ("requests",)
# A dead NFS server blocks stat() for ever. After this time, preflight reports it.
PATH_SECONDS = 5.0
# Without an engine, the disk that fills up is that of Ray's sessions, logs and spilled objects.
RAY_DISK = "/tmp"  # noqa: S108
IPV4_SETTINGS = "/proc/sys/net/ipv4"
# The second one is for users that dmesg refuses.
KERNEL_LOG_COMMANDS = (("dmesg",), ("journalctl", "--dmesg", "--quiet", "--no-pager", "--output=cat"))
PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "grpc_proxy", "no_proxy")


class Probe:
    """Reads the state of this machine. root: the directory that holds /proc, /sys, /dev and the paths."""

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
        """Return everything that is known of the machine.

        cluster: whose containers are reported. names, images, paths: of what else is reported.
        python: that of a node without a container.
        """
        # Each call to the engine takes 20 to 100 ms and none depends on another.
        with ThreadPoolExecutor(max_workers=8) as pool:
            gpus_future, hcas_future = pool.submit(self.gpus), pool.submit(self.hcas)
            software_future = pool.submit(self.software, python)
            engine_future, paths_future = pool.submit(self.engine, engine), pool.submit(self.paths, paths)
            containers_future = pool.submit(self.containers, engine, cluster, names)
            image_futures = {name: pool.submit(self.image, engine, name) for name in images}
            engine_state, containers = engine_future.result(), {}
            inspected: dict[str, Image | None] = {}
            try:
                containers = containers_future.result()
                inspected = {name: future.result() for name, future in image_futures.items()}
            except EngineError as error:
                containers = {}
                # If the engine itself does not answer, its own error explains more than that of a later call.
                if engine_state.status == EngineStatus.OK:
                    engine_state = replace(engine_state, status=EngineStatus.FAILED, error=str(error))
            disk = self._disk(engine_state)
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
            memory_bytes=self.memory_bytes(),
            shm_bytes=self.shm_bytes(),
            uid=os.geteuid(),
            gid=os.getegid(),
            user=user_name(os.geteuid()),
            engine=engine_state,
            containers=containers,
            images=inspected,
            ports_in_use=self.listening_ports(),
            ephemeral_ports=parse_ephemeral_range(read_text(self._at(f"{IPV4_SETTINGS}/ip_local_port_range"))),
            reserved_ports=parse_reserved_ports(read_text(self._at(f"{IPV4_SETTINGS}/ip_local_reserved_ports"))),
            rdma_devices=tuple(read_rdma_devices(self._root)),
            rocm_gpus=tuple(render_devices := read_render_devices(self._root)),
            rocm_devices=tuple(read_amd_device_files(self._root, render_devices)),
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
        """Return the errors of NVIDIA's driver in the kernel log, and why the log cannot be read, or ""."""
        problems = []
        for argv in KERNEL_LOG_COMMANDS:
            code, out, err = self._run(argv)
            # Without the right to read it, journalctl exits with 0 and prints nothing.
            if code == 0 and out.strip():
                return parse_xids(out), ""
            problems.append(f"{argv[0]}: {' '.join(err.split())[:200] or f'exit code {code} without a message'}")
        return [], "; ".join(problems)

    def software(self, python: str) -> Software | None:
        return parse_software(python, *self._run([python, "-c", SOFTWARE_PROGRAM])) if python else None

    def hcas(self) -> list[Hca]:
        """Return the ports that ibdev2netdev lists, or else those of sysfs: without IPoIB, ibdev2netdev lists none."""
        code, out, _err = self._run(["ibdev2netdev"])
        listed = [] if code else parse_ibdev2netdev(out)
        return [with_sysfs(port, self._root) for port in listed] or hcas_of_sysfs(self._root)

    def listening_ports(self) -> list[int]:
        tables = (read_text(self._at(f"/proc/net/{name}")) for name in ("tcp", "tcp6"))
        return sorted(set().union(*map(parse_listeners, tables)))

    def memory_bytes(self) -> int:
        total = parse_meminfo(read_text(self._at("/proc/meminfo"))).get("MemTotal", 0)
        # In the container of a compute platform, meminfo describes the whole machine, and the cgroup has the limit.
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
        return read_paths(self._root, paths, self._path_seconds)

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
        """Return the state of the disk that fills up; None if the engine does not tell its data directory."""
        disk = RAY_DISK if engine.status == EngineStatus.NONE else engine.root_dir
        return self.paths([disk])[0] if disk else None

    def _cdi_lists_nvidia(self, directories: Iterable[str]) -> bool:
        """Whether a CDI file, which names devices that an engine may give to containers, names NVIDIA's GPUs."""
        specifications = (entry for name in directories for entry in self._at(name).glob("*") if entry.is_file())
        return any("nvidia.com/gpu" in read_text(entry) for entry in specifications)

    def _has_nvidia_hook(self, engine: Engine) -> bool:
        # With this program, "docker run --gpus" works without a registered runtime.
        return engine.name == DOCKER and self._at("/usr/bin/nvidia-container-runtime-hook").exists()

    def containers(self, engine: str, cluster: str, names: Sequence[str]) -> dict[str, Container]:
        """Return the containers of the cluster in any state, and any other container that has one of the names."""
        listed = self._engine_output(engine, "ps", "-aq", "--no-trunc", "--filter", f"label={CLUSTER_LABEL}={cluster}")
        ids = listed.split()
        if not ids and not names:
            return {}
        # A container may be removed between the two calls.
        inspected = self._engine_output(engine, "container", "inspect", *ids, *names, may_be_absent=True)
        # "inspect" also finds a container by the beginning of its id.
        return {
            name: container
            for name, container in parse_containers(inspected).items()
            if container.id in ids or name in names
        }

    def image(self, engine: str, reference: str) -> Image | None:
        return parse_image(self._engine_output(engine, "image", "inspect", reference, may_be_absent=True))

    def _engine_output(self, engine: str, *arguments: str, may_be_absent: bool = False) -> str:
        if engine == NO_ENGINE:
            return ""
        code, out, err = self._run([engine, *arguments])
        if code and not (may_be_absent and reports_only_absence(err)):
            problem = f"failed with exit code {code}: {error_message(out, err)}"
            raise EngineError(f'"{engine} {" ".join(arguments)}" {problem}')
        return out

    def _at(self, path: str) -> Path:
        return self._root / path.lstrip("/")


def proxies_of(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that set proxies, in lower case and without the user and password of a URL."""
    variables = {name.lower(): value for name, value in environment.items() if value}
    return {name: re.sub(r"[^/,]*@", "", variables[name]) for name in PROXY_VARIABLES if name in variables}
