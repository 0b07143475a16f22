# SPDX-License-Identifier: Apache-2.0
"""What the nodes of a job use, as Ray measures it: a line every half minute, and what is wrong with a node by them."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..archive.archive import Archive
from ..archive.job_warnings import JobWarning, WarningKind
from ..io.output import one_line
from ..io.reading import MIB
from ..io.schema import MalformedError, json_text, parse
from ..ray.api import ALIVE

FILE = "logs/hardware.jsonl"
SECONDS = 30.0
# Beyond it, every second line is left out: those of a job stay evenly distributed.
MOST_BYTES = 16 * MIB
MOST_NODES = 1000
# Ray's own files, which is where a full disk of a node is noticed first.
DISKS = ("/tmp/ray", "/")  # noqa: S108
# What is judged: the last half hour, as far as most of it was measured.
JUDGED_SECONDS, LEAST_SECONDS, TAIL_BYTES = 1800.0, 1500.0, 4 * MIB
# Below that percentage, a GPU does nothing.
IDLE_PERCENT = 5.0
# Memory that grows is told from this share on, if it will be full within so many hours.
MEMORY_SHARE, MEMORY_HOURS = 0.5, 12.0
# How well a line has to describe the growth: the correlation of memory and time.
CORRELATION = 0.9
# So many lines are what happens now: one may be from between two steps.
LAST_LINES = 4
GB = 1e9


@dataclass(frozen=True)
class Gpu:
    """percent: of its time in use. memory: in bytes. power: in watts. temperature: in degrees Celsius."""

    percent: float | None = None
    memory: float | None = None
    memory_total: float | None = None
    power: float | None = None
    temperature: float | None = None


@dataclass(frozen=True)
class Usage:
    """What a node uses: percent of its CPUs, bytes, and bytes per second. memory: of its container, if that is limited.

    disk_free: of the file system with Ray's own files.
    """

    cpu: float | None = None
    memory: float | None = None
    memory_total: float | None = None
    shm: float | None = None
    disk_free: float | None = None
    sent: float | None = None
    received: float | None = None
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True)
class Measured:
    """time: seconds since the epoch. nodes: by name."""

    time: float
    nodes: Mapping[str, Usage] = field(default_factory=dict)


def of_job(answer: Any, job_id: str, now: float, node_id: str = "") -> Measured:
    """What the workers use on which a job has processes. answer: of Ray's /nodes?view=summary; job_id: Ray's own id.

    node_id: of a worker whose processes Ray does not know.

    The driver of a worker at the head's own address is listed with the head, which has no part in the training.

    Raises KeyError and TypeError for another answer.
    """
    nodes = {}
    for node in answer["data"]["summary"]:
        raylet = node.get("raylet") or {}
        processes = raylet.get("coreWorkersStats") or ()
        is_worker = raylet.get("state") == ALIVE and not raylet.get("isHeadNode")
        # Processes of no job have the id "".
        is_known = job_id and any(process.get("jobId") == job_id for process in processes)
        if is_worker and (is_known or (node_id and raylet.get("nodeId") == node_id)):
            nodes[str(raylet["nodeName"])] = usage(node)
    return Measured(round(now, 1), nodes)


def usage(node: Mapping[str, Any]) -> Usage:
    total, available = (*(node.get("mem") or ()), None, None)[:2]
    sent, received = (*(node.get("networkSpeed") or ()), None, None)[:2]
    disks = node.get("disk") or {}
    return Usage(
        cpu=node.get("cpu"),
        memory=None if total is None or available is None else total - available,
        memory_total=total,
        shm=node.get("shm"),
        disk_free=next((disks[path].get("free") for path in DISKS if path in disks), None),
        sent=sent and round(sent),
        received=received and round(received),
        gpus=tuple(map(gpu, node.get("gpus") or ())),
    )


def gpu(measured: Mapping[str, Any]) -> Gpu:
    memory, total, power = (measured.get(name) for name in ("memoryUsed", "memoryTotal", "powerMw"))
    return Gpu(
        percent=measured.get("utilizationGpu"),
        memory=None if memory is None else memory * float(MIB),
        memory_total=None if total is None else total * float(MIB),
        power=None if power is None else power / 1000,
        temperature=measured.get("temperatureC"),
    )


def gpu_percent(archive: Archive) -> float | None:
    """How much the GPUs of a job were in use in its last lines, on average. Raises UnreadableError."""
    last = [*read(archive, TAIL_BYTES)][-LAST_LINES:]
    every = (gpu.percent for line in last for node in line.nodes.values() for gpu in node.gpus)
    # A job can put any number there.
    known = [percent for percent in every if percent is not None and 0 <= percent <= 100]
    return statistics.fmean(known) if known else None


def append(archive: Archive, measured: Measured) -> None:
    """Raises OSError and UnreadableError."""
    archive.append(FILE, f"{json_text(measured)}\n")
    with contextlib.suppress(OSError):
        if os.lstat(archive.path / FILE).st_size > MOST_BYTES:
            lines = thinned([*read(archive)])
            archive.write_text(FILE, "".join(f"{json_text(line)}\n" for line in lines), durable=False)


def thinned(lines: Sequence[Measured]) -> list[Measured]:
    """Half of the lines, evenly distributed over the time between the first and the last one."""
    width = (lines[-1].time - lines[0].time) / max(1, len(lines) // 2) if lines else 0.0
    kept: list[Measured] = []
    for each in lines:
        if not kept or each.time - kept[-1].time >= width:
            kept.append(each)
    return kept


def read(archive: Archive, tail: int = 0) -> Iterator[Measured]:
    """What was measured, of the last `tail` bytes or all. A job can write there. Raises UnreadableError."""
    try:
        with archive.open(FILE) as file:
            size = min(file.seek(0, os.SEEK_END), 2 * MOST_BYTES)
            file.seek(-min(tail or size, size), os.SEEK_END)
            data = file.read(size)
    except FileNotFoundError:
        return
    last = 0.0
    for line in data.splitlines():
        with contextlib.suppress(ValueError, RecursionError, MalformedError):
            measured = parse(Measured, json.loads(line))
            # After what a job may have put there, and within what a chart can have.
            if last < measured.time < 1e11 and len(measured.nodes) <= MOST_NODES:
                last = measured.time
                yield measured


def warnings(measured: Iterable[Measured]) -> list[JobWarning]:
    """What is wrong with the nodes of a job, from the last half hour."""
    every = [*measured]
    recent = [each for each in every if each.time >= every[-1].time - JUDGED_SECONDS]
    if len(recent) < 3 or recent[-1].time - recent[0].time < LEAST_SECONDS:
        return []
    found = [text for name in recent[-1].nodes if (text := growth(name, recent))]
    told = [JobWarning(WarningKind.MEMORY_GROWS, text) for text in found[:1]]
    gpus = [gpu.percent for each in recent for node in each.nodes.values() for gpu in node.gpus]
    if gpus and all(percent is not None and percent < IDLE_PERCENT for percent in gpus):
        told.append(JobWarning(WarningKind.GPUS_IDLE, f"the GPUs do nothing for {JUDGED_SECONDS / 60:.0f} min"))
    return told


def growth(name: str, measured: Sequence[Measured]) -> str:
    """How the memory of a node grows, if it will be full within hours, or ""."""
    points = [(each.time, node.memory) for each in measured if (node := each.nodes.get(name)) and node.memory]
    total = measured[-1].nodes[name].memory_total
    times, values = [time for time, _value in points], [value for _time, value in points if value]
    if len(points) < 3 or not total or values[-1] < MEMORY_SHARE * total or len(set(values)) == 1:
        return ""
    slope = statistics.linear_regression(times, values).slope
    if slope <= 0 or statistics.correlation(times, values) < CORRELATION:
        return ""
    hours = (total - values[-1]) / slope / 3600
    if hours > MEMORY_HOURS:
        return ""
    grows = f"the memory of {one_line(name)} grows {slope * 3600 / GB:.1f} GB an hour"
    return f"{grows}, and is full in about {hours:.1f} h"
