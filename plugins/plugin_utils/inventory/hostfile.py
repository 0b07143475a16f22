# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes an inventory of a hostfile of MPI, DeepSpeed, torchrun or PBS, for playbooks/init.yml, as a filter."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from ...module_utils.argus.common.findings import Finding
from ...module_utils.argus.common.text import one_line
from ...module_utils.cluster.process_host import is_reachable
from ...module_utils.network.interfaces import resolve
from .inventory import HEADS, NODES, WORKERS, runtime_of
from .nodes import CONTAINER

NUMBER = "[1-9][0-9]{0,3}"
# An IPv6 address without brackets has no slots after a colon. No host exceeds its slots here, so Open MPI's upper limit
# of them is ignored.
LINE = re.compile(
    r"(?:\[(?P<brackets>[0-9a-fA-F:.]+)\]|(?P<ipv6>[0-9a-fA-F.]*(?::[0-9a-fA-F.]*){2,})|(?P<name>[A-Za-z0-9][\w.-]*))"
    rf"(?::(?P<colon>{NUMBER})|\s+slots=(?P<slots>{NUMBER}))?(?:\s+max[-_]slots={NUMBER})?",
    re.ASCII,
)
FORMS = "write HOST, HOST slots=N or HOST:N, with a number of GPUs"


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def address_of(host: str) -> str:
    """The address at which other hosts reach a host, IPv4 if it has one; "" if there is none."""
    addresses = [host] if is_address(host) else resolve(host)
    return min(filter(is_reachable, addresses), key=lambda address: ":" in address, default="")


def parse_hostfile(text: str, file: str) -> tuple[dict[str, int | None], list[Finding]]:
    """The hosts in their order with their numbers of GPUs, None if the file has none, and what is wrong in the file."""
    slots: dict[str, str | None] = {}
    lines: Counter[str] = Counter()
    findings: list[Finding] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not (stated := line.partition("#")[0].strip()):
            continue
        place, match = f"{file}, line {number}", LINE.fullmatch(stated)
        host = (match["brackets"] or match["ipv6"] or match["name"]) if match else ""
        if not match or (":" in host and not is_address(host)):
            findings.append(Finding(place, f"{one_line(stated, 100)!r} is not a host", FORMS))
            continue
        count = match["colon"] or match["slots"]
        # A host without a count may have several lines: PBS writes one for each slot.
        if lines[host] and (count or slots[host]):
            findings.append(Finding(place, f"{host} has an earlier line", "give a host one line with all its slots"))
        lines[host] += 1
        slots.setdefault(host, count)
    if not lines and not findings:
        findings.append(Finding(file, "has no hosts", FORMS))
    gpus = {host: int(count or 0) or (lines[host] if lines[host] > 1 else None) for host, count in slots.items()}
    return gpus, findings


def hostfile_inventory(text: str, file: str, template: Mapping[str, Any]) -> dict[str, Any]:
    """The inventory with the head on the first host and a worker on each, and what is wrong in the file.

    template: an inventory whose variables of all nodes are kept. They say how nodes run.
    """
    group_variables = template[NODES]["vars"]
    gpus, findings = parse_hostfile(text, file)
    nodes: list[dict[str, Any]] = []
    for host in gpus:
        node = {"ansible_host": host}
        # A process finds its address itself.
        if runtime_of(group_variables) == CONTAINER:
            node |= {"ray_node_machine": host, "ray_node_address": address_of(host)}
            if not node["ray_node_address"]:
                problem, remedy = f"{host} has no address at which other hosts reach it", "write its address"
                findings.append(Finding(file, problem, remedy))
        nodes.append(node)
    workers = {
        f"ray-worker-{number}": node | ({} if count is None else {"ray_node_gpus": count})
        for number, (node, count) in enumerate(zip(nodes, gpus.values(), strict=True))
    }
    children = {HEADS: {"hosts": {"ray-head": nodes[0] if nodes else {}}}, WORKERS: {"hosts": workers}}
    inventory = {NODES: {"children": children, "vars": dict(group_variables)}}
    return {"inventory": inventory, "findings": [finding.as_dict() for finding in findings]}
