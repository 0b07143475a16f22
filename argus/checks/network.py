# SPDX-License-Identifier: GPL-3.0-or-later
"""The network, as variables of a job have it: interfaces and adapters of a node, and proxies."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ..common.findings import ERROR, WARNING, Finding, about
from ..common.text import one_line

ADAPTERS = Path("/sys/class/infiniband")
GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd")
# Servers of a job speak HTTP without TLS.
PROXIES = ("http_proxy", "all_proxy")
GLOO = "GLOO_SOCKET_IFNAME"
REMEDY = "remove it: preflight names what each node has, for ray_node_env; or set it to what all nodes have"


def network_findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    interfaces = [name for _index, name in socket.if_nameindex()]
    adapters = [path.name for path in ADAPTERS.iterdir()] if ADAPTERS.is_dir() else []
    # RCCL reads it as well. Without GPUs, nothing does.
    severity = ERROR if any(map(os.path.exists, GPU_DEVICES)) else WARNING
    for name, present, effect, severe in (
        (GLOO, interfaces, "gloo does not start; it knows whole names only, with commas, no ^ and no =", ERROR),
        ("NCCL_SOCKET_IFNAME", interfaces, "NCCL does not start", severity),
        ("NCCL_IB_HCA", adapters, "NCCL uses no InfiniBand and no RoCE there", WARNING),
    ):
        value = environment.get(name, "")
        # torch/csrc/distributed/c10d/ProcessGroupGloo.cpp: every one has to exist
        is_known = {*present}.issuperset(filter(None, value.split(","))) if name == GLOO else selects(value, present)
        # Both take a single character for none.
        if len(value) > 1 and not is_known:
            what = f"is {value}, but the node has {one_line(', '.join(sorted(present)), 200) or 'none'}: {effect}"
            yield about(f"env_vars.{name}", what, REMEDY, severe)


def selects(value: str, present: Iterable[str]) -> bool:
    """Whether NCCL finds one: by names or, without =, prefixes, each with a port or not; with ^, any other."""
    text = value.removeprefix("^")
    parts = tuple(part.partition(":")[0] for part in text.removeprefix("=").split(",") if part)
    named = [name in parts if text.startswith("=") else name.startswith(parts) for name in present]
    return not all(named) if value.startswith("^") else any(named)


def direct_hosts(environment: Mapping[str, str]) -> str | None:
    """The value of no_proxy in an environment; None if there is no proxy."""
    # The lower case wins (urllib.request: getproxies_environment), and comes last.
    values = {name.lower(): value for name, value in sorted(environment.items()) if value}
    return None if values.keys().isdisjoint(PROXIES) else values.get("no_proxy", "")


def proxy_findings(variables: Iterable[str], direct: str | None, addresses: Iterable[str]) -> Iterator[Finding]:
    """A proxy that would get what is for the nodes. Neither Ray nor verl's client, aiohttp, reads it; others do.

    variables: the names of those of the JobSpec. direct: what direct_hosts says on a worker. addresses: of all nodes.
    """
    names = [name for name in variables if name.lower() in (*PROXIES, "no_proxy")]
    if direct is None or not names:
        return
    excluded = [part.strip() for part in direct.split(",") if part.strip()]
    hosts = ["localhost", "127.0.0.1", *sorted(addresses)]
    missing = [host for host in hosts if not any(covers(part, host) for part in excluded)]
    if missing:
        what = "is set, and no_proxy lacks nodes: what requests and httpx, for example, send to these goes to the proxy"
        todo = f"set env_vars.no_proxy to {','.join([*excluded, *missing])}"
        yield about(f"env_vars.{names[0]}", what, todo, WARNING)


def covers(part: str, host: str) -> bool:
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host) in ipaddress.ip_network(part, strict=False)
    return part in ("*", host)
