# SPDX-License-Identifier: Apache-2.0
"""What a job's nodes use, as Ray measures it: every half minute into the archive, with warnings derived from it.

Values are None if Ray could not measure them.
"""

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
from ..ray.records import ALIVE

# A line of JSON for each Measurement.
MEASUREMENTS_FILE = "logs/hardware.jsonl"
SAMPLE_INTERVAL_SECONDS = 30.0
# Beyond this size every second line is dropped, so that the lines of a job stay evenly distributed.
MAX_BYTES = 16 * MIB
MAX_NODES = 1000
# The places of Ray's own files, where a full disk is noticed first. The first one that Ray measures counts.
RAY_DISKS = ("/tmp/ray", "/")  # noqa: S108
# Warnings consider the last half hour, if at least so much of it was measured.
WINDOW_SECONDS, MIN_COVERED_SECONDS = 1800.0, 1500.0
# The end of the file that has the last half hour.
TAIL_BYTES = 4 * MIB
# A GPU below this utilization counts as idle.
MAX_IDLE_PERCENT = 5.0
# Growing memory causes a warning if this share of it is in use, and it will be full within these hours.
MIN_MEMORY_SHARE, MAX_HOURS_TO_FULL = 0.5, 12.0
# The minimum correlation of memory and time for a linear growth.
MIN_CORRELATION = 0.9
# The number of lines that show the present use; one alone may be from between two steps.
RECENT_LINES = 4
GB = 1e9


@dataclass(frozen=True)
class Gpu:
    """The use of a GPU."""

    percent: float | None = None  # the share of the time in which it worked
    # In bytes.
    memory: float | None = None
    memory_total: float | None = None
    power: float | None = None  # in watts
    temperature: float | None = None  # in degrees Celsius


@dataclass(frozen=True)
class Usage:
    """The use of a node. Memory and disk are in bytes."""

    cpu: float | None = None  # in percent
    # The memory of the container, if that is limited, or else of the machine.
    memory: float | None = None
    memory_total: float | None = None
    shm: float | None = None  # shared memory in use
    disk_free: float | None = None  # free in the file system with Ray's own files
    # By the network, in bytes per second.
    sent: float | None = None
    received: float | None = None
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True)
class Measurement:
    """The use of a job's nodes at a time."""

    time: float  # in seconds since the epoch
    nodes: Mapping[str, Usage] = field(default_factory=dict)  # by the name of the node


def measure_job(answer: Any, job_id: str, now: float, node_id: str = "") -> Measurement:
    """The use of the workers on which a job has processes. Raises KeyError and TypeError for a malformed answer.

    answer: of /nodes?view=summary. node_id: a worker that counts although Ray knows no processes of the job there.
    The head, with which Ray lists the driver of a worker at its address, does not count: it takes no part in training.
    """
    nodes = {}
    for node in answer["data"]["summary"]:
        raylet = node.get("raylet") or {}
        processes = raylet.get("coreWorkersStats") or ()
        is_worker = raylet.get("state") == ALIVE and not raylet.get("isHeadNode")
        # A process that belongs to no job has the id "".
        is_known = job_id and any(process.get("jobId") == job_id for process in processes)
        if is_worker and (is_known or (node_id and raylet.get("nodeId") == node_id)):
            nodes[str(raylet["nodeName"])] = parse_usage(node)
    return Measurement(round(now, 1), nodes)


def parse_usage(node: Mapping[str, Any]) -> Usage:
    """The use of a node, from its entry in Ray's summary."""
    total, available = (*(node.get("mem") or ()), None, None)[:2]
    sent, received = (*(node.get("networkSpeed") or ()), None, None)[:2]
    disks = node.get("disk") or {}
    return Usage(
        cpu=node.get("cpu"),
        memory=None if total is None or available is None else total - available,
        memory_total=total,
        shm=node.get("shm"),
        disk_free=next((disks[path].get("free") for path in RAY_DISKS if path in disks), None),
        sent=sent and round(sent),
        received=received and round(received),
        gpus=tuple(map(parse_gpu, node.get("gpus") or ())),
    )


def parse_gpu(device: Mapping[str, Any]) -> Gpu:
    memory, total, power = (device.get(name) for name in ("memoryUsed", "memoryTotal", "powerMw"))
    return Gpu(
        percent=device.get("utilizationGpu"),
        memory=None if memory is None else memory * float(MIB),
        memory_total=None if total is None else total * float(MIB),
        power=None if power is None else power / 1000,
        temperature=device.get("temperatureC"),
    )


def mean_gpu_percent(archive: Archive) -> float | None:
    """The mean GPU utilization in a job's last measurements. Raises UnreadableError."""
    last = [*read(archive, TAIL_BYTES)][-RECENT_LINES:]
    every = (gpu.percent for line in last for node in line.nodes.values() for gpu in node.gpus)
    # A job can write any number into the file.
    percents = [percent for percent in every if percent is not None and 0 <= percent <= 100]
    return statistics.fmean(percents) if percents else None


def append(archive: Archive, measurement: Measurement) -> None:
    """Add a measurement to the archive. Raises OSError and UnreadableError."""
    archive.append(MEASUREMENTS_FILE, f"{json_text(measurement)}\n")
    with contextlib.suppress(OSError):
        if os.lstat(archive.path / MEASUREMENTS_FILE).st_size > MAX_BYTES:
            lines = thin_out([*read(archive)])
            archive.write_text(MEASUREMENTS_FILE, "".join(f"{json_text(line)}\n" for line in lines), durable=False)


def thin_out(lines: Sequence[Measurement]) -> list[Measurement]:
    """Half of the lines, evenly distributed over the time between the first and the last one."""
    width = (lines[-1].time - lines[0].time) / max(1, len(lines) // 2) if lines else 0.0
    kept: list[Measurement] = []
    for line in lines:
        if not kept or line.time - kept[-1].time >= width:
            kept.append(line)
    return kept


def read(archive: Archive, tail: int = 0) -> Iterator[Measurement]:
    """The measurements in the last `tail` bytes, or in all, without other lines of the job. Raises UnreadableError."""
    try:
        with archive.open(MEASUREMENTS_FILE) as file:
            size = min(file.seek(0, os.SEEK_END), 2 * MAX_BYTES)
            file.seek(-min(tail or size, size), os.SEEK_END)
            data = file.read(size)
    except FileNotFoundError:
        return
    last = 0.0
    for line in data.splitlines():
        with contextlib.suppress(ValueError, RecursionError, MalformedError):
            measurement = parse(Measurement, json.loads(line))
            # Whatever a job has written, times increase and fit a chart.
            if last < measurement.time < 1e11 and len(measurement.nodes) <= MAX_NODES:
                last = measurement.time
                yield measurement


def usage_warnings(measurements: Iterable[Measurement]) -> list[JobWarning]:
    """The warnings about a job's nodes, from the last half hour."""
    every = [*measurements]
    recent = [line for line in every if line.time >= every[-1].time - WINDOW_SECONDS]
    if len(recent) < 3 or recent[-1].time - recent[0].time < MIN_COVERED_SECONDS:
        return []
    growing = [text for name in recent[-1].nodes if (text := memory_growth_text(name, recent))]
    job_warnings = [JobWarning(WarningKind.MEMORY_GROWS, text) for text in growing[:1]]
    gpus = [gpu.percent for line in recent for node in line.nodes.values() for gpu in node.gpus]
    if gpus and all(percent is not None and percent < MAX_IDLE_PERCENT for percent in gpus):
        job_warnings.append(JobWarning(WarningKind.GPUS_IDLE, f"the GPUs do nothing for {WINDOW_SECONDS / 60:.0f} min"))
    return job_warnings


def memory_growth_text(name: str, measurements: Sequence[Measurement]) -> str:
    """A text about the memory of a node if it grows and will be full within hours, or ""."""
    points = [(line.time, node.memory) for line in measurements if (node := line.nodes.get(name)) and node.memory]
    total = measurements[-1].nodes[name].memory_total
    times, values = [time for time, _value in points], [value for _time, value in points if value]
    if len(points) < 3 or not total or values[-1] < MIN_MEMORY_SHARE * total or len(set(values)) == 1:
        return ""
    slope = statistics.linear_regression(times, values).slope
    if slope <= 0 or statistics.correlation(times, values) < MIN_CORRELATION:
        return ""
    hours = (total - values[-1]) / slope / 3600
    if hours > MAX_HOURS_TO_FULL:
        return ""
    grows = f"the memory of {one_line(name)} grows {slope * 3600 / GB:.1f} GB an hour"
    return f"{grows}, and is full in about {hours:.1f} h"
