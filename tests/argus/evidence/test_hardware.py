"""What the nodes of a job use: from Ray's answer to the archive, and what is wrong with it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from argus.archive.archive import Archive
from argus.evidence import hardware
from argus.evidence.hardware import Gpu, Measurement, Usage

GIB = 1 << 30
GPU = {"index": 0, "name": "H100", "utilizationGpu": 97, "memoryUsed": 70_000, "memoryTotal": 81_559}
GPU |= {"powerMw": 650_500, "temperatureC": 61}


def node(name: str, job_id: str, **values: Any) -> dict[str, Any]:
    """A node as Ray's dashboard describes it."""
    workers = [{"jobId": "ffffffff", "workerType": "WORKER"}, {"jobId": job_id, "workerType": "WORKER"}]
    return {
        "raylet": {"nodeName": name, "state": "ALIVE", "coreWorkersStats": workers},
        "cpu": 64.7,
        "mem": [100 * GIB, 60 * GIB, 40.0, 39 * GIB],
        "shm": 5 * GIB,
        "disk": {"/": {"free": 7}, "/tmp/ray": {"free": 70 * GIB}},
        "networkSpeed": [2799.03, 1726.4],
        "gpus": [GPU],
        **values,
    }


def test_what_the_nodes_of_a_job_use_is_kept(archive: Archive) -> None:
    nodes = [node("gpu-1", "02000000"), node("gpu-2", "03000000"), node("gpu-3", "02000000", gpus=[{"index": 0}])]
    nodes.append(node("gpu-4", "02000000", raylet={"nodeName": "gpu-4", "state": "DEAD"}))
    raylet = {"nodeName": "head", "state": "ALIVE", "isHeadNode": True, "coreWorkersStats": [{"jobId": "02000000"}]}
    nodes.append(node("head", "02000000", raylet=raylet))
    # Ray could not measure most values of this node.
    nodes.append(node("gpu-5", "02000000", mem=None, disk={}, networkSpeed=None, gpus=None, shm=None))
    hardware.append(archive, hardware.measure_job({"data": {"summary": nodes}}, "02000000", 1000.04))
    [measured] = hardware.read(archive)
    assert (measured.time, list(measured.nodes)) == (1000.0, ["gpu-1", "gpu-3", "gpu-5"])
    gpu = Gpu(97, 70_000 << 20, 81_559 << 20, 650.5, 61)
    used = {"shm": 5 * GIB, "disk_free": 70 * GIB, "sent": 2799, "received": 1726, "gpus": (gpu,)}
    assert measured.nodes["gpu-1"] == Usage(cpu=64.7, memory=40 * GIB, memory_total=100 * GIB, **used)
    assert measured.nodes["gpu-3"].gpus == (Gpu(),)
    assert measured.nodes["gpu-5"] == Usage(cpu=64.7)
    # Ray knows no processes of a command, which runs on the node of its driver.
    nodes = [node("gpu-1", ""), node("gpu-2", "", raylet={"nodeName": "gpu-2", "state": "ALIVE", "nodeId": "ab12"})]
    assert [*hardware.measure_job({"data": {"summary": nodes}}, "", 1000.0, "ab12").nodes] == ["gpu-2"]


def test_lines_of_a_long_job_are_left_out_evenly(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "MAX_BYTES", 20_000)
    for number in range(1000):
        hardware.append(archive, Measurement(1000.0 + 30 * number, {"gpu-1": Usage(cpu=1.0)}))
    times = [measured.time for measured in hardware.read(archive)]
    assert (archive.path / hardware.MEASUREMENTS_FILE).stat().st_size <= 20_500
    assert (times[0], times[-1]) == (1000.0, 1000.0 + 30 * 999)
    gaps = {after - before for before, after in itertools.pairwise(times)}
    assert max(gaps) <= 30 * 1000 / len(times) * 4


def test_what_a_job_puts_there_is_left_out(archive: Archive) -> None:
    lines = ["[" * 10_000, "7", '{"time": "x"}', '{"time": 1e300}', '{"time": -1}', '{"time": 5, "nodes": [1]}']
    lines += ['{"time": 5, "nodes": {"a": {"gpus": [7]}}}', '{"time": NaN}', '{"time": 7, "nodes": {"a": {}}}']
    lines += ['{"time": 6, "nodes": {}}', '{"time": 8, "nodes": {"a": {"cpu": 1']
    archive.write_text(hardware.MEASUREMENTS_FILE, "\n".join(lines))
    assert [measured.time for measured in hardware.read(archive)] == [7.0]
    (archive.path / hardware.MEASUREMENTS_FILE).unlink()
    assert list(hardware.read(archive)) == []


def half_an_hour(usage: Callable[[float], Usage], seconds: float = 30.0) -> list[Measurement]:
    """Measurements of an hour and a half; the function gets the hours since the beginning."""
    times = [seconds * number for number in range(int(5400 / seconds))]
    return [
        Measurement(1000 + time, {"gpu-0": Usage(memory=GIB, memory_total=100 * GIB), "gpu-1": usage(time / 3600)})
        for time in times
    ]


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (
            lambda hours: Usage(memory=(60 + 10 * hours) * 1e9, memory_total=100e9),
            "gpu-1 grows 10.0 GB an hour",
        ),
        # It needs days; it is small; it is a load that comes and goes; it shrinks; nothing is known.
        (lambda hours: Usage(memory=(60 + hours) * 1e9, memory_total=100e9), ""),
        (lambda hours: Usage(memory=(10 + 10 * hours) * 1e9, memory_total=100e9), ""),
        (lambda hours: Usage(memory=(60 + 20 * (round(hours * 120) % 2)) * 1e9, memory_total=100e9), ""),
        (lambda _hours: Usage(), ""),
    ],
)
def test_memory_that_grows(usage: Callable[[float], Usage], expected: str) -> None:
    warnings = hardware.usage_warnings(half_an_hour(usage))
    assert [warning.kind for warning in warnings] == (["memory_grows"] if expected else [])
    assert all(expected in warning.text for warning in warnings)


def test_gpus_that_do_nothing() -> None:
    def kinds(percents: Callable[[float], list[float | None]], since: float = 0.0) -> list[str]:
        measured = half_an_hour(lambda hours: Usage(gpus=tuple(map(Gpu, percents(hours)))))
        return [warning.kind for warning in hardware.usage_warnings(measured[int(since * 120) :])]

    assert kinds(lambda _hours: [0.0, 3.0]) == ["gpus_idle"]
    assert kinds(lambda _hours: [0.0, 90.0]) == kinds(lambda _hours: [0.0, None]) == kinds(lambda _hours: []) == []
    assert kinds(lambda hours: [90.0 if 1.2 < hours < 1.21 else 0.0]) == []
    # Earlier values no longer count; a short time shows nothing.
    assert kinds(lambda hours: [90.0 if hours < 0.9 else 0.0]) == ["gpus_idle"]
    assert kinds(lambda _hours: [0.0], since=1.2) == []
