# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the basic answer of a machine with what the inventory expects of it."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from ..argus.common.findings import ERROR, WARNING, Finding
from ..argus.common.node_process import ORPHANED
from ..argus.common.shared_root import JOBS_DIR
from ..cluster.devices import ALWAYS, AUTO, INFINIBAND, NEVER, openable
from ..cluster.engine import CLUSTER_LABEL, DOCKER, PODMAN, RUNNING, UP, EngineStatus
from ..cluster.hardware import PathState
from ..cluster.machine import Machine
from ..cluster.ports import DASHBOARD_USE
from ..cluster.state import ROCKSDB
from ..privileges import UNPRIVILEGED
from .checks import Expectation, Problem
from .gpu import gpu_problems
from .host import host_problems, software_problems
from .network import hostname_problems

GIB = 2**30
# Ray refuses to start a node with a smaller share of memory for its processes: ray/_private/resource_and_label_spec.py.
MIN_PROCESS_SHARE = 0.05
MAX_NAMES = 4
# The token, and the registry of jobs with their JobSpecs.
STATE_FREE_BYTES = 64 * 2**20
# The same with the tables of Ray's head, 26 MB after 20 jobs: without room, its GCS ends.
TABLES_FREE_BYTES = 512 * 2**20
# File systems that other machines may mount, too.
NETWORK_FILE_SYSTEMS = (
    *("nfs", "nfs4", "lustre", "gpfs", "beegfs", "wekafs", "afs", "ceph", "cifs", "smb3"),
    *("fuse.ceph", "fuse.glusterfs", "fuse.juicefs", "fuse.sshfs"),
)


def machine_findings(host: str, machine: Machine, expectation: Expectation) -> list[Finding]:
    checks = (
        *(_engine, _packages, _user, gpu_problems, _hcas, _shared_root, _space, _memory, _names, _token),
        *(_state_dir, _process, _podman, _ports, _ephemeral_ports, _hca_devices),
        *(host_problems, software_problems, hostname_problems),
    )
    return [problem.finding(host) for check in checks for problem in check(machine, expectation)]


def _nodes_user(machine: Machine, expectation: Expectation) -> str:
    ansible_user = f"{machine.uid}:{machine.gid}"
    if machine.process:
        # Also if that is root, which process.root reports.
        return ansible_user
    return expectation.user or (ansible_user if machine.uid else f"{UNPRIVILEGED}:{UNPRIVILEGED}")


def gib(count: float) -> str:
    return f"{count / GIB:.1f} GiB"


def _engine(machine: Machine, _expectation: Expectation) -> Iterator[Problem]:
    engine = machine.engine
    remedy = {
        EngineStatus.MISSING: f'install "{engine.name}" on this machine',
        EngineStatus.DENIED: f'add the user "{machine.user}" to the group "docker", or set ansible_become: true'
        if engine.name == DOCKER
        else f'give user "{machine.user}" subordinate ids (usermod --add-subuids, --add-subgids), or set '
        "ansible_become: true",
        EngineStatus.NO_ANSWER: "start its daemon (systemctl enable --now docker) and check its log",
        EngineStatus.FAILED: "run the command on the machine and fix the error that it prints",
    }.get(engine.status)
    if remedy:
        yield Problem(
            "machine.engine", f"container engine not usable, expected one that answers: {engine.error}", remedy
        )


def _packages(machine: Machine, _expectation: Expectation) -> Iterator[Problem]:
    if machine.engine.name == DOCKER and machine.engine.status != EngineStatus.NONE:
        for name in machine.missing_packages:
            yield Problem(
                "machine.packages",
                f"{machine.python} has no package {name}, which is needed to start containers",
                f"install it there (python3-{name}, or pip install {name}), or set another ansible_python_interpreter",
            )


def _user(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    """Only root can give files to another user."""
    uid = expectation.user.partition(":")[0]
    if machine.engine.status == EngineStatus.NONE or not machine.uid or uid in ("", str(machine.uid)):
        return
    yield Problem(
        "machine.user",
        f'ray_node_user is {expectation.user}, but Ansible runs as user "{machine.user}" (uid {machine.uid}): nodes '
        "could neither read the token nor write to the shared root",
        f'remove ray_node_user, so that nodes run as "{machine.user}", or set ansible_become: true for the machines',
    )


def _hcas(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    up = [port for port in machine.hcas if port.state == "up"]
    down = [port for port in machine.hcas if port.state != "up"]
    if len(up) >= expectation.hcas:
        return
    if not machine.hcas:
        yield Problem(
            "hca.count",
            f"no HCA found, expected at least {expectation.hcas} ports up",
            "load the driver (mlx5_ib), or lower the number of HCAs in the inventory",
        )
        return
    listed = ", ".join(f"{port.device} port {port.port} ({port.netdev or 'no netdev'})" for port in down)
    yield Problem(
        "hca.count",
        f"{len(up)} HCA ports up, expected at least {expectation.hcas}; down: {listed or 'none'}",
        "check cable, switch port and subnet manager of the ports that are down"
        if down
        else "check for an adapter that lspci lists and ibstat does not, or lower the number of HCAs in the inventory",
    )


def _shared_root(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    path = expectation.shared_root
    state = next((mount for mount in machine.mounts if mount.path == path), None)
    if not path or state is None:
        return
    location = f"{state.fstype} from {state.source}, mounted at {state.mount_point}"
    types = list(expectation.shared_root_fstypes)
    expected = f" of type {' or '.join(types)}" if types else ""
    if state.error:
        yield Problem(
            "root.answers",
            f"shared root {path} cannot be read: {state.error} ({location}), expected a directory{expected}",
            "bring its file server back, or unmount it (umount -l) and mount it again",
        )
        return
    if not state.exists:
        yield Problem(
            "root.answers",
            f"shared root {path} does not exist (its nearest parent is on {location}), expected a directory{expected}",
            f"mount the shared file system at {path}, or create the directory where it is mounted already",
        )
        return
    if types and state.fstype not in types:
        yield Problem(
            "root.type",
            f"shared root {path} is {location}, expected{expected}",
            f'mount the shared file system at {path}, or add "{state.fstype}" to preflight_shared_root_fstypes',
        )
    yield from _shared_root_use(machine, expectation, state, location)
    yield from _shared_root_owner(machine, expectation, state)


def _shared_root_use(machine: Machine, expectation: Expectation, state: PathState, location: str) -> Iterator[Problem]:
    user, read_only = _nodes_user(machine, expectation), "ro" in state.options
    # On NFS, root may have no rights (root_squash), and needs none where the nodes' user has them.
    needs_own = read_only or machine.uid != 0 or not _can_write(state, user, expectation.groups)
    if not state.writable and needs_own:
        yield Problem(
            "root.writable",
            f"shared root {state.path} ({location}) is {'mounted read-only' if read_only else 'not writable'}, "
            f'expected writable for user "{machine.user}" (uid {machine.uid})',
            "mount it with the option rw"
            if read_only
            else f"give it to the nodes' user (chown {user}), on NFS with root_squash on the server",
        )
    if state.free_bytes < expectation.shared_root_free_gib * GIB:
        yield Problem(
            "root.space",
            f"shared root {state.path} ({location}) has {gib(state.free_bytes)} free, "
            f"expected at least {expectation.shared_root_free_gib:g} GiB",
            f"remove old checkpoints and outputs below {state.path}, or grow the file system",
        )


def _can_write(state: PathState, user: str, groups: Sequence[str]) -> bool:
    """Whether a user without rights of root can write to the directory, or owns the job archives in it.

    groups: further ones of the user. One with a name may be any group.
    """
    uid, gid = user.split(":")
    owner, group = (state.owner or ":").split(":")
    is_member = group in (gid, *groups) or not all(map(str.isdigit, groups))
    rights = (state.mode or 0) >> (6 if uid == owner else 3 if is_member else 0)
    return uid != "0" and (rights & 0o3 == 0o3 or (state.archives_owner or "").split(":")[0] == uid)


def _shared_root_owner(machine: Machine, expectation: Expectation, state: PathState) -> Iterator[Problem]:
    if state.mode is not None and state.mode & stat.S_IWOTH and not state.mode & stat.S_ISVTX:
        yield Problem(
            "root.mode",
            f"every user of the machine can replace the directories of the shared root {state.path} "
            f"(mode {state.mode:o}), expected a directory that only its owner or group can write to",
            f"chmod o-w {state.path}, or set the sticky bit (chmod +t)",
        )
    # Without root, they belong to Ansible's own user.
    user, owner = _nodes_user(machine, expectation), state.archives_owner
    if machine.uid == 0 and owner and owner.split(":")[0] != user.split(":")[0]:
        can_be_set = not machine.process and not owner.startswith("0:")
        other = f'set ray_node_user: "{owner}" for the nodes, or ' if can_be_set else ""
        yield Problem(
            "root.owner",
            f"the job archives in {state.path}/{JOBS_DIR} belong to {owner}, expected the nodes' user {user}",
            f"{other}change their owner: chown -hR {user} {state.path}/{JOBS_DIR}",
        )


def _token(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    path = PurePosixPath(expectation.token_file)
    limits = {str(path): 0o400, str(path.parent): 0o711} if expectation.token_file else {}
    for state in machine.mounts:
        limit = limits.get(state.path)
        # The owner's own rights are no problem.
        if state.mode is not None and limit is not None and state.mode & 0o077 & ~limit:
            yield Problem(
                "machine.token",
                f"{state.path} has mode {state.mode:o}, expected {limit:o}: other users of the machine could find or "
                "read the cluster's token",
                f"chmod {limit:o} {state.path}, and rotate the token if you do not trust them "
                "(cluster_up.yml -e rotate_token=true)",
            )


def _state_dir(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    """Check the directory in which cluster_up writes the token and the registry of jobs."""
    path = str(PurePosixPath(expectation.token_file).parent) if expectation.token_file else ""
    state = next((mount for mount in machine.mounts if mount.path == path), None)
    if state is None:
        return
    location = f"{state.fstype} from {state.source}, mounted at {state.mount_point}"
    elsewhere = "set cluster_state_dir to a directory on a local disk that Ansible's user can write to"
    if state.error:
        yield Problem(
            "machine.state_dir",
            f"the directory of the token, {path}, cannot be read: {state.error} ({location})",
            elsewhere,
        )
        return
    if state.fstype in NETWORK_FILE_SYSTEMS:
        yield Problem(
            "machine.state_dir",
            f"the directory of the token, {path}, is {location}, expected a local disk: machines would overwrite and "
            "remove each other's token, and root may not read it there",
            elsewhere,
        )
    if not state.writable:
        problem = "cannot be written to" if state.exists else "does not exist and cannot be created"
        yield Problem(
            "machine.state_dir",
            f'the directory of the token, {path}, {problem} by user "{machine.user}" ({location})',
            elsewhere,
        )
        return
    least = TABLES_FREE_BYTES if expectation.head_storage == ROCKSDB else STATE_FREE_BYTES
    if state.free_bytes < least:
        free = f"{state.free_bytes / 2**20:.0f} MiB"
        yield Problem(
            "machine.state_dir",
            f"the directory of the token, {path}, has {free} free, expected at least {least // 2**20} MiB",
            f"remove files from {state.mount_point}, or {elsewhere}",
        )


def _space(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    disk = machine.disk
    if disk and disk.free_bytes < expectation.disk_free_gib * GIB:
        error = f" ({disk.error})" if disk.error else ""
        yield Problem(
            "machine.disk",
            f"{disk.path} ({disk.fstype} from {disk.source}) has {gib(disk.free_bytes)} free{error}, "
            f"expected at least {expectation.disk_free_gib:g} GiB",
            "remove old Ray sessions below /tmp/ray, or grow the file system"
            if machine.engine.status == EngineStatus.NONE
            else f"remove unused images ({machine.engine.name} image prune), or move its data to a larger disk",
        )


def _names(machine: Machine, _expectation: Expectation) -> Iterator[Problem]:
    for name, container in machine.containers.items():
        if container.cluster == machine.cluster:
            continue
        owner = f'cluster "{container.cluster}"' if container.cluster else f"no cluster (no label {CLUSTER_LABEL})"
        yield Problem(
            "machine.node_name",
            f'the name "{name}" is taken by a container of {owner} ({container.state}, id {container.id[:12]}), '
            f'expected free or of cluster "{machine.cluster}"',
            "ask its owner to remove or rename it, or rename the node in the inventory",
        )


def _memory(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    if machine.shm_bytes < expectation.shm_gib * GIB:
        # Ray puts its object store there and falls back to /tmp; NCCL fails with a bus error.
        yield Problem(
            "machine.shm",
            f"shared memory (/dev/shm) has {gib(machine.shm_bytes)}, expected at least {expectation.shm_gib:g} GiB",
            f"mount -o remount,size={expectation.shm_gib:g}G /dev/shm, ask the platform for more shared memory, or set "
            "a smaller ray_node_shm_gib for the nodes of this machine",
        )
    max_gib = machine.memory_bytes * (1 - MIN_PROCESS_SHARE) / GIB
    if expectation.object_store_gib > max_gib:
        yield Problem(
            "machine.object_store",
            f"{gib(machine.memory_bytes)} of memory, and Ray's object store takes {expectation.object_store_gib:g} GiB "
            "of it (half of ray_node_shm_gib): Ray does not start",
            f"set ray_node_shm_gib for the nodes of this machine to at most {max(1, int(2 * max_gib))}; "
            "8 is enough for a head",
        )


def _process(machine: Machine, _expectation: Expectation) -> Iterator[Problem]:
    process = machine.process
    if process is None:
        return
    if machine.uid == 0:
        yield Problem(
            "process.root",
            "Ansible is root here, and a node without a container runs as Ansible's user: every job would be root",
            "connect as a user without root (ansible_user), and remove ansible_become for this host",
        )
    if not process.ray:
        yield Problem(
            "process.ray",
            "the command ray is neither beside ray_node_python nor on the system's PATH",
            "set ray_node_python to the Python in whose environment Ray and verl are installed",
        )
    if not process.address:
        yield Problem(
            "process.address",
            "no address was found at which other nodes reach this host",
            "set ray_node_address to an IP address of this host; a loopback makes gloo and NCCL fail",
        )
    if process.others:
        listed = ", ".join(process.others[:MAX_NAMES])
        more = f" and {len(process.others) - MAX_NAMES} more" if len(process.others) > MAX_NAMES else ""
        yield Problem(
            "process.other_ray",
            f"another Ray runs on this host ({listed}{more}); it is left alone",
            "end it if it is not needed (its owner, with `ray stop`): it may use the same GPUs and ports",
        )


def _podman(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    engine = machine.engine
    if engine.name != PODMAN or engine.status != EngineStatus.OK:
        return
    if not engine.lingers:
        yield Problem(
            "podman.lingers",
            f'systemd ends the containers of user "{machine.user}" when its last connection is closed',
            f"loginctl enable-linger {machine.user}",
        )
    elif not engine.boots:
        scope = "--user " if engine.rootless else ""
        yield Problem(
            "podman.boot",
            "podman-restart.service is not enabled: nodes do not start again after the machine has booted",
            f"systemctl {scope}enable podman-restart.service, or run cluster_up.yml after each boot",
        )
    if not engine.limits_pids:
        yield Problem(
            "podman.limits",
            "Podman without root cannot limit processes here",
            "use version 2 of cgroups, and delegate the controller pids to users (Delegate= of user@.service)",
        )
    if not engine.tun and not expectation.address:
        yield Problem(
            "podman.tun",
            f'user "{machine.user}" may not read and write /dev/net/tun, which networks of Podman without root need',
            "modprobe tun; chmod 0666 /dev/net/tun (the mode that udev gives it), or set cluster_network: host",
        )


def _ports(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    for ports in expectation.ports:
        used = [
            port
            for port in machine.ports_in_use
            if ports.first <= port <= ports.last and not _held_by_node(machine, ports.node, port)
        ]
        if not used:
            continue
        end = "end what listens there, a program (ss -ltnp) or another cluster, or choose"
        if ports.use == DASHBOARD_USE:
            problem = f"port {used[0]} is in use, expected free for the dashboard and the Jobs API"
            yield Problem("machine.port", problem, f"{end} another port with cluster_dashboard_port")
            continue
        problem = f"port {used[0]} is in use, expected free for {ports.use} of {ports.node}"
        if len(used) > 1:
            problem = f"ports {', '.join(map(str, used))} are in use, expected free for {ports.use} of {ports.node}"
        yield Problem(
            "machine.port",
            problem,
            f"{end} other ports with cluster_port_base, as for a second cluster on the same machines",
            # Ray passes over a port of its worker processes that is in use.
            WARNING if ports.last > ports.first else ERROR,
        )


def _held_by_node(machine: Machine, node: str, port: int) -> bool:
    """Whether the node itself, which is up, holds the port; with the host's network its ports are not listed."""
    if machine.process is not None:
        # What is left of it, too: it is ended before the node starts.
        return machine.process.node.state in (RUNNING, ORPHANED)
    container = machine.containers.get(node)
    return (
        container is not None
        and container.cluster == machine.cluster
        and container.state in UP
        and (port in container.host_ports or container.host_network)
    )


def _ephemeral_ports(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    """Find planned ports that the kernel may give to an outgoing connection."""
    planned = [ports for ports in expectation.ports if ports.use != DASHBOARD_USE]
    if not planned or not machine.ephemeral_ports:
        return
    first, last = min(ports.first for ports in planned), max(ports.last for ports in planned)
    start, end = machine.ephemeral_ports
    reserved = {port for low, high in machine.reserved_ports for port in range(max(low, first), min(high, last) + 1)}
    free = [port for port in range(max(first, start), min(last, end) + 1) if port not in reserved]
    if free:
        yield Problem(
            "machine.port",
            f"the kernel may give ports {free[0]}-{free[-1]} of the nodes to outgoing connections "
            f"(net.ipv4.ip_local_port_range is {start}-{end})",
            f"reserve them: sysctl -w net.ipv4.ip_local_reserved_ports={first}-{last}, and the same in /etc/sysctl.d; "
            "or choose a lower cluster_port_base",
            WARNING,
        )


def _hca_devices(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    """Find what keeps nodes from RDMA: NCCL then uses TCP, at a fraction of the speed."""
    hcas, files, groups = machine.hcas, machine.rdma_devices, expectation.groups
    if expectation.rdma == NEVER or (expectation.rdma == AUTO and not hcas):
        return
    if not files:
        is_asked = expectation.rdma == ALWAYS
        effect = "nodes would not start" if is_asked else "jobs would use TCP instead of RDMA"
        yield Problem(
            "hca.devices",
            f"{len(hcas)} HCA ports, but no {INFINIBAND}/uverbs*: {effect}",
            "install rdma-core and load the driver (modprobe ib_uverbs), or set ray_node_rdma: false",
            ERROR if is_asked else WARNING,
        )
        return
    user = _nodes_user(machine, expectation)
    uid, gid = (int(number) for number in user.split(":"))
    members = [gid, *(int(group) for group in groups if group.isdigit())]
    closed = [file for file in files if not openable(file, uid, members)]
    # The number of a group by its name is known in the image only.
    if closed and all(group.isdigit() for group in groups):
        listed = ", ".join(f"{file.path} (mode {file.mode:o}, {file.uid}:{file.gid})" for file in closed)
        yield Problem(
            "hca.devices",
            f"the nodes' user {user} cannot open {listed}: jobs would use TCP instead of RDMA",
            "install rdma-core, whose udev rule gives them mode 666, or add their group to ray_node_groups",
        )
