# SPDX-License-Identifier: GPL-3.0-or-later
"""The table of all checks of preflight, the problems that they find, and what the inventory expects of a machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..argus.common.findings import NOTE, Finding
from ..cluster.machine import Machine
from ..cluster.names import RDMA_NEVER
from ..cluster.ports import PortRange
from ..privileges import UNPRIVILEGED

FAST, DEEP = "fast", "deep"
# The checks of each tier. A line has the key of a check, by which an operator accepts it, its severity and what it
# checks. The indented lines below it are the remedy. A problem may have another severity and remedy than its check.
TABLES = {
    FAST: """
machine.reachable  error  Ansible reaches the machine
machine.clock  warning  the clock agrees with that of the head's machine
    synchronize the clocks: chronyc tracking, timedatectl
amd.devices  error  AMD's GPUs have /dev/kfd
    load the driver (modprobe amdgpu), and check dmesg for its error
gpu.answers  error  nvidia-smi answers in time, without an error
    look for processes in state D on the machine (ps -eo pid,stat,wchan,cmd); it may have to be restarted
gpu.driver  error  all machines have one driver version
    install one driver version on all machines
gpu.same  warning  all machines have the same GPUs
    use machines with the same GPUs for one job
gpu.ecc  error  no uncorrected memory errors since the driver was loaded
    reset the GPU or reboot; if it comes back (nvidia-smi -q, amd-smi metric --ecc), ask the vendor for another GPU
gpu.remap  error  no memory rows wait for their replacement, or could not be replaced
    reset the GPU or reboot; after a failure of the replacement, ask the vendor for another GPU
gpu.recovery  error  the driver does not ask for a reset
    do what the driver asks for
gpu.xid  warning  no errors of the driver (Xid) in the kernel log
    look it up in NVIDIA's list of Xid errors; reboot, which also empties the kernel log
gpu.mig  warning  MIG is off
    nvidia-smi -mig 0, and reset the GPU: a job would get slices instead of GPUs
gpu.processes  error  no program besides the cluster's own nodes uses a GPU
    end it, or ask its owner to: jobs need all of the memory
gpu.memory  warning  no memory is in use without a process
    look for processes of other containers (fuser -v /dev/nvidia*), or reset the GPU
host.kernel  warning  all machines run one kernel
    update and reboot the machines that differ
host.image  warning  an image is the same on all machines, and with it Python, Ray, torch, NCCL and verl
    pull or load the image again on the machines that differ, best by its digest
host.stuck  warning  no process hangs in the kernel (state D)
    look for dead file servers and drivers (ps -eo pid,stat,wchan:30,cmd, dmesg); only a reboot ends such a
    process
host.tmp  warning  free space in /tmp
    remove old files in /tmp, such as those of earlier Rays
host.nofile  warning  programs may open enough files
    raise the limit (LimitNOFILE of the engine's service, or nofile in /etc/security/limits.conf)
host.memlock  warning  memory can be locked, which InfiniBand needs, where nodes are processes
    set "* - memlock unlimited" in /etc/security/limits.conf, and log in again
host.ray  warning  no Ray runs outside of containers, where nodes are containers
    end it, if it is a leftover (ray stop as its user): it takes memory and may use the same ports
host.stray_token  warning  no ~/.ray/auth_token of Ansible's user
    remove it, unless you need it: from 2.59 on it switches on Ray's tokens for every Ray of this user
software.python  error  ray_node_python runs, and has a Ray with tokens, where nodes are processes
    set ray_node_python to the Python in whose environment Ray and verl are installed
software.ray  error  all nodes without containers have one Python and one Ray
    install the same on all hosts: Ray's nodes refuse a head with another version
software.packages  warning  all nodes without containers have one torch, NCCL, vLLM, SGLang and verl
    install the same on all hosts: ranks with different versions fail, or train something else
network.hostname  error  the machine's own name does not resolve to a loopback, or gloo fails
network.proxy  warning  proxies leave out the addresses of the cluster
    add the addresses of the cluster and 127.0.0.1 to no_proxy
network.hca_rate  warning  the HCA ports of a machine have the rate of the fast network
    compare cable, transceiver and switch port with those of the other ports; a port for storage is fine as it is
network.hca_missing  error  every machine with workers has ports of the fast network, if most have some
    bring its ports up: until then NCCL uses TCP between it and the others, or fails
network.hca_number  warning  all machines have the same number of ports of the fast network
    bring the missing ports up (ibstat): the slowest machine sets the pace of a job
network.hca_errors  warning  no HCA port has far more errors than the others
    compare cable, transceiver and switch port with those of the other ports; the counters begin when the driver
    is loaded
network.gid  error  RoCE ports have a GID of RoCE v2 over IPv4
    give the interfaces of these ports an IPv4 address
network.gid_index  warning  these GIDs of a machine have one index
    make the addresses of these interfaces alike, or set NCCL_IB_GID_INDEX in ray_node_env: NCCL chooses now
network.interface  error  an interface carries the network common to all machines
    set ray_node_address to an address of the machine that the others reach, or set NCCL_SOCKET_IFNAME and
    GLOO_SOCKET_IFNAME in ray_node_env
network.subnet  warning  the addresses of all machines are in their common network
    check that the others reach it there (ping, and port 22 with nc), or correct ray_node_address
network.mtu  error  the MTU is the same on all machines
    set the same MTU on all machines: large packets get lost between them, and connections hang
storage.type  error  the shared root has one type of file system on all machines
    mount the shared file system on the machines that differ
storage.source  warning  the shared root comes from one source on all machines
    mount the same export everywhere; several names of one server are fine, and preflight_tier=deep shows it
storage.options  warning  the shared root is mounted with the same options on all machines
    use one line in /etc/fstab for all machines
storage.local  warning  the shared root of several machines is no local file system
    mount the shared file system there; preflight_tier=deep shows whether machines see each other's files
machine.engine  error  the container engine answers
machine.packages  error  Python has the packages that starting containers needs
machine.user  error  without root, nodes run as Ansible's user, who owns the token and the directories
machine.node_name  error  no other container has the name of a node
machine.port  error  the ports of nodes and of the dashboard are free, and stay so
machine.image  error  the images of nodes are there, or can be pulled
machine.state_dir  error  the directory of the token is on a local disk, with space
machine.token  warning  only the cluster's users can find and read its token
machine.disk  error  free space for images and containers
machine.shm  error  the size of /dev/shm, where nodes are processes
machine.object_store  error  memory for Ray's object store, half of ray_node_shm_gib
gpu.count  error  the number of GPUs
gpu.model  warning  all GPUs are of one model; another one than preflight_gpu_model is an error
gpu.engine  error  the container engine can give GPUs to containers
hca.count  error  the number of HCA ports that are up
hca.devices  warning  the nodes' user can open the devices of HCAs
root.answers  error  the shared root can be read
root.type  error  the type of the shared root's file system
root.writable  error  Ansible's user can write to the shared root, or where that is root, the nodes' user
root.space  error  free space on the shared root
root.mode  warning  only owner and group can replace directories of the shared root
root.owner  error  the archives belong to the nodes' user
process.root  error  Ansible's user is not root
process.ray  error  the command ray is found
process.address  error  other nodes reach the host at an address
process.other_ray  warning  no other Ray runs on the host
podman.lingers  error  without root, containers outlive the connection of their user
podman.boot  warning  nodes start again after the machine has booted
podman.limits  warning  the number of processes of a node can be limited
podman.tun  error  without root, containers can have a network of their own
""",
    DEEP: """
storage.trial  error  the nodes' user can write, read and lock on the shared root
    correct the error on that machine; cluster_up.yml creates the directories of the shared root
storage.canary  error  what one machine writes to the shared root, all others read
    mount the same export on both machines, with caches of at most a minute (acdirmax)
storage.late  warning  files of other machines are seen at once
    mount the shared root with lookupcache=positive, or a smaller acdirmax
storage.owner  error  all machines see the same owner of a file
    on NFSv4 set one domain in /etc/idmapd.conf, or use numeric ids; give the nodes' user one uid everywhere
storage.locks  error  locks of one machine keep out the others
    mount the shared root without nolock and local_lock, on Lustre with flock
storage.rename  error  a file is replaced by renaming another one
    use a file system with POSIX semantics; object stores behind FUSE have none
collective.works  error  an all-reduce over all workers of a running cluster succeeds
    look at its interfaces, HCAs and firewall; NCCL_DEBUG=INFO in ray_node_env shows what NCCL tries
collective.bandwidth  warning  no worker slows down an all-reduce
    compare its link, its error counters and its load with those of the others
collective.skipped  warning  the all-reduce is made, or there is a note
    run it again when no job runs
""",
}


class Check(NamedTuple):
    """A check of preflight. Severity and remedy are the defaults for its problems."""

    severity: str
    # What is checked, for the documentation.
    about: str
    remedy: str
    tier: str


def parse_table(tier: str) -> Iterator[tuple[str, Check]]:
    """Yield the checks of a tier with their keys."""
    first, remedy = "", ""
    for line in [*TABLES[tier].strip().splitlines(), ""]:
        if line.startswith(" "):
            remedy = f"{remedy} {line.strip()}".strip()
            continue
        if first:
            key, severity, about = first.split("  ")
            yield key, Check(severity, about, remedy, tier)
        first, remedy = line, ""


CHECKS = {key: check for tier in TABLES for key, check in parse_table(tier)}


class Problem(NamedTuple):
    """What a check has found on one machine or on several. An empty remedy or severity is that of the check."""

    key: str
    text: str
    remedy: str = ""
    severity: str = ""

    def finding(self, where: str) -> Finding:
        check = CHECKS[self.key]
        return Finding(where, self.text, self.remedy or check.remedy, self.severity or check.severity, key=self.key)


def mark_accepted(finding: Finding, accept: Sequence[str]) -> Finding:
    """Return the finding, as a note if the operator accepts it. accept: keys of checks, as key or key@host."""
    if finding.severity != NOTE and finding.key and {finding.key, f"{finding.key}@{finding.where}"} & set(accept):
        return replace(finding, severity=NOTE, problem=f"accepted: {finding.problem}")
    return finding


class Invariant(NamedTuple):
    """A value that has to be the same on all machines."""

    key: str
    name: str
    # Empty if it is unknown.
    value: str


def counts_text(names: Iterable[str]) -> str:
    """Return text such as "1 x A, 7 x B"."""
    return ", ".join(f"{count} x {name}" for name, count in sorted(Counter(names).items()))


def difference_findings(key: str, name: str, values: Mapping[str, str]) -> Iterable[Finding]:
    """Yield a finding for each host whose value is not that of most hosts; an empty one is unknown, and left out."""
    stated = {host: value for host, value in values.items() if value}
    # Of several values that are equally frequent, the first.
    ((usual, count),) = Counter(stated.values()).most_common(1) or [("", 0)]
    for host, value in stated.items():
        if value != usual:
            yield Problem(key, f"{name} is {value}, on {count} of {len(stated)} machines it is {usual}").finding(host)


GIB = 2**30
# Conversions by the type of the field. A variable is text if it comes from the command line.
CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {
    "int": int,
    "int | None": int,
    "float": float,
    "Sequence[str]": lambda value: value.split(",") if isinstance(value, str) else [str(item) for item in value],
    "Sequence[PortRange]": lambda value: tuple(PortRange(**item) for item in value),
}


@dataclass(frozen=True)
class Expectation:
    """What one machine must have. A zero, an empty text or an empty list expects nothing."""

    # The least number of GPUs; None accepts any number, and 0 means that the machine's GPUs are not used.
    gpus: int | None = None
    # Words in the name of each GPU.
    gpu_model: str = ""
    # The least number of HCA ports that are up.
    hcas: int = 0
    shared_root: str = ""
    # The file-system types that the shared root may have, as the kernel names them: "nfs4", "lustre".
    shared_root_fstypes: Sequence[str] = ()
    # The least free space where the engine keeps images, and on the shared root.
    disk_free_gib: float = 0.0
    shared_root_free_gib: float = 0.0
    # The least size of /dev/shm, if nodes use that of the machine.
    shm_gib: float = 0.0
    # How much memory the largest node gives to Ray's object store.
    object_store_gib: float = 0.0
    # The nodes' user as uid:gid; empty for the default.
    user: str = ""
    token_file: str = ""
    ports: Sequence[PortRange] = ()
    # RDMA_AUTO or RDMA_ALWAYS if nodes of the machine may get its RDMA devices.
    rdma: str = RDMA_NEVER
    # Further groups of the nodes' user, as numbers or as names in the image.
    groups: Sequence[str] = ()
    # The address at which other nodes reach this machine; empty if nodes do not use the machine's network.
    address: str = ""
    # Whether the machine has workers.
    trains: bool = True
    # The variables of NCCL and gloo that the inventory sets, so that they are not derived.
    network_env: Mapping[str, str] = field(default_factory=dict)
    # The Python of a node without a container; empty where nodes are containers.
    python: str = ""
    # cluster_head_storage, if Ray's head is on the machine.
    head_storage: str = ""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Expectation:
        """Parse the option `expect` of machine_info. Fields that are None or empty keep their defaults."""
        types = {attribute.name: str(attribute.type) for attribute in fields(cls)}
        expected = cls(
            **{
                name: CONVERSIONS.get(types.get(name, ""), lambda same: same)(value)
                for name, value in values.items()
                if value not in (None, "")
            }
        )
        # "~" is the home of Ansible's user on the machine, where this runs first.
        token = expected.token_file
        return replace(expected, token_file=str(Path(token).expanduser())) if token else expected


@dataclass(frozen=True)
class Context:
    """A machine as it was probed, and what is expected of it."""

    host: str
    machine: Machine
    expected: Expectation


def node_uid_gid(machine: Machine, expectation: Expectation) -> str:
    """Return the user that nodes run as on a machine, as "uid:gid"."""
    ansible_user = f"{machine.uid}:{machine.gid}"
    if machine.process:
        # If that is root, the check process.root reports it.
        return ansible_user
    return expectation.user or (ansible_user if machine.uid else f"{UNPRIVILEGED}:{UNPRIVILEGED}")


def gib_text(size_bytes: float) -> str:
    return f"{size_bytes / GIB:.1f} GiB"
