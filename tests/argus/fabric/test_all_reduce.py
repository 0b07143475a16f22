"""What needs no Ray. A real all-reduce runs in the tests of a real cluster."""

from __future__ import annotations

from typing import Any

import pytest

from argus.fabric.all_reduce import Worker, bus_bandwidth, is_peer_timeout, workers_of


def node(name: str, accelerator: str | None = None, **resources: float) -> dict[str, Any]:
    return {
        "NodeID": f"id-{name}",
        "NodeName": name,
        "NodeManagerHostname": "host",
        "NodeManagerAddress": "10.0.0.1",
        "Resources": resources,
        "Labels": {"argus.verl/accelerator": accelerator} if accelerator else None,
    }


def test_workers_of_ray() -> None:
    """A logical GPU of the CPU backend is none, and the head has no CPUs."""
    head, cpu = node("head", "cuda", GPU=0), node("b", "cpu", CPU=48, GPU=4)
    cuda, without = node("a", "cuda", CPU=96, GPU=8), node("c", "cuda", CPU=96)
    assert workers_of([head, cpu, cuda, without]) == [
        Worker("a", "id-a", "10.0.0.1", 8, "cuda"),
        Worker("b", "id-b", "10.0.0.1", 1, "cpu"),
    ]
    assert workers_of([{**node("", CPU=1)}])[0].name == "host"


def test_bus_bandwidth() -> None:
    assert [bus_bandwidth(1, processes, 0.001) for processes in (2, 4)] == pytest.approx([1.048576, 1.572864])


def test_error_of_a_process_that_has_waited() -> None:
    assert all(map(is_peer_timeout, ("w0 0: DistStoreError: timeout after 20000ms", "w0 0: no answer within 60 s")))
    assert not is_peer_timeout("w2 0: RuntimeError: Unable to find address for: nope0")
