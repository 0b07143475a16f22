# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One process of an all-reduce. The code travels to workers by value."""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from datetime import timedelta

ERROR_LENGTH = 200


@dataclass(frozen=True)
class Round:
    """What all processes of one all-reduce agree on.

    seconds: the limit of each step. start_seconds: until all processes run; importing torch takes long on a cold disk.
    """

    address: str
    port: int
    world: int
    backend: str
    mib: int
    times: int
    seconds: float
    start_seconds: float


def free_port(address: str) -> int:
    """A port of this node on which the first process can listen."""
    with socket.socket() as asking:
        asking.bind((address, 0))
        return int(asking.getsockname()[1])


def take_part(rank: int, together: Round) -> float | str:
    """Return the seconds of one all-reduce, or the error in one line."""
    try:
        return reduce_together(rank, together)
    except Exception as error:
        lines = str(error).strip().splitlines() or [""]
        return f"{type(error).__name__}: {lines[0][:ERROR_LENGTH]}"


def reduce_together(rank: int, together: Round) -> float:
    import torch
    import torch.distributed as dist

    device = torch.device("cuda", 0) if together.backend == "nccl" else torch.device("cpu")
    waiting = timedelta(seconds=together.start_seconds)
    store = dist.TCPStore(together.address, together.port, together.world, is_master=rank == 0, timeout=waiting)
    dist.init_process_group(
        together.backend,
        store=store,
        rank=rank,
        world_size=together.world,
        timeout=timedelta(seconds=together.seconds),
    )
    try:
        # The first one connects all processes, and its result is known.
        first = torch.ones(1024, device=device)
        dist.all_reduce(first)
        if float(first.min()) != together.world or float(first.max()) != together.world:
            raise RuntimeError(f"the sum of {together.world} ones is {float(first.min())}")
        tensor = torch.zeros((together.mib << 20) // 4, device=device)
        dist.all_reduce(tensor)
        wait(torch, device)
        begin = time.perf_counter()
        for _number in range(together.times):
            dist.all_reduce(tensor)
        wait(torch, device)
        return (time.perf_counter() - begin) / together.times
    finally:
        dist.destroy_process_group()


def wait(torch: object, device: object) -> None:
    """Kernels on a GPU run on after the call."""
    if getattr(device, "type", "") == "cuda":
        torch.cuda.synchronize()  # type: ignore[attr-defined]
