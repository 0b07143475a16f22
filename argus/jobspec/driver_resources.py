# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether any worker can ever give a driver what the JobSpec asks for it. Ray would keep it PENDING for ever."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..common.findings import Finding, about
from ..common.text import one_line
from .spec import JobSpec

ASKED = "ray.resources"
CPUS = f"{ASKED}.entrypoint_num_cpus"
RESOURCES = f"{ASKED}.entrypoint_resources"
# Resources that Ray itself gives to nodes; others are not named as what workers have.
OF_RAY = ("node:", "object_store_memory", "memory", "accelerator_type:", "CPU", "GPU")


def driver_findings(spec: JobSpec, nodes: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Resources of the driver that no worker has, counted in total: what is in use now becomes free.

    nodes: as Ray's state API returns them.
    """
    workers = {
        node["node_name"]: node["resources_total"]
        for node in nodes
        if node["state"] == "ALIVE" and node["resources_total"].get("worker_node")
    }
    asked = {RESOURCES: dict(spec.entrypoint_resources), CPUS: {"CPU": spec.entrypoint_num_cpus}}
    if not workers:
        return []
    found = [finding for key, amounts in asked.items() for finding in missing(key, amounts, workers)]
    amounts = {name: amount for each in asked.values() for name, amount in each.items()}
    if not found and not any(has(total, amounts) for total in workers.values()):
        what = f"no worker has all of {described(amounts)} for the driver"
        found.append(about(ASKED, what, "ask for what one worker has; cluster_status.yml shows them"))
    return found


def missing(key: str, amounts: Mapping[str, float], workers: Mapping[str, Mapping[str, float]]) -> Iterator[Finding]:
    for name, amount in amounts.items():
        most, worker = max((total.get(name, 0), worker) for worker, total in workers.items())
        if amount <= most:
            continue
        if most:
            largest, todo = f"the largest amount is {most:g}, of {worker}", f"ask for at most {most:g}"
        else:
            known = {each for total in workers.values() for each in total if not each.startswith(OF_RAY)}
            largest, todo = "no worker has any", f"workers have {', '.join(map(one_line, sorted(known)))}"
        yield about(key, f"asks for {amount:g} {one_line(name, 100)} for the driver, but {largest}", todo)


def has(total: Mapping[str, float], amounts: Mapping[str, float]) -> bool:
    return all(total.get(name, 0) >= amount for name, amount in amounts.items())


def described(amounts: Mapping[str, float]) -> str:
    return ", ".join(f"{amount:g} {one_line(name, 100)}" for name, amount in amounts.items() if amount)
