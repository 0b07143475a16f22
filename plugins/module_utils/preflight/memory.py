# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Compare the memory of a machine, and its /dev/shm, with what its nodes take of them."""

from __future__ import annotations

from collections.abc import Iterator

from ..argus.common.findings import ERROR, WARNING
from ..cluster.machine import Machine
from .checks import Check, Problem
from .expectation import Expectation

GIB = 2**30
# Ray refuses to start a node with less for its processes: ray/_private/resource_and_label_spec.py.
LEAST_BESIDE = 0.05
SHM = Check("machine.shm", ERROR, "the size of /dev/shm, where Ray runs without containers")
OBJECT_STORE = Check("machine.object_store", ERROR, "memory for Ray's object store, half of ray_node_shm_gib")
MEMORY = Check("machine.memory", WARNING, "memory for each GPU")
MEMORY_CHECKS = (SHM, OBJECT_STORE, MEMORY)


def gib(count: float) -> str:
    return f"{count / GIB:.1f} GiB"


def memory_problems(machine: Machine, expectation: Expectation) -> Iterator[Problem]:
    if machine.shm_bytes < expectation.shm_gib * GIB:
        # Ray puts its object store there and falls back to /tmp; NCCL fails with a bus error.
        yield Problem(
            SHM,
            f"shared memory (/dev/shm) has {gib(machine.shm_bytes)}, expected at least {expectation.shm_gib:g} GiB",
            f"mount -o remount,size={expectation.shm_gib:g}G /dev/shm, ask the platform for more shared memory, or set "
            "a smaller ray_node_shm_gib for the nodes of this machine",
        )
    most_gib = machine.memory_bytes * (1 - LEAST_BESIDE) / GIB
    if expectation.object_store_gib > most_gib:
        yield Problem(
            OBJECT_STORE,
            f"{gib(machine.memory_bytes)} of memory, and Ray's object store takes {expectation.object_store_gib:g} GiB "
            "of it (half of ray_node_shm_gib): Ray does not start",
            f"set ray_node_shm_gib for the nodes of this machine to at most {max(1, int(2 * most_gib))}; "
            "8 is enough for a head",
        )
    gpus = len(machine.gpus) if expectation.gpus is None else expectation.gpus
    if machine.memory_bytes < gpus * expectation.memory_gib_per_gpu * GIB:
        # 80 GB of memory for each GPU: github.com/verl-project/verl/issues/429. Smaller models need less.
        yield Problem(
            MEMORY,
            f"{gib(machine.memory_bytes)} of memory for {gpus} GPUs, expected at least "
            f"{expectation.memory_gib_per_gpu:g} GiB per GPU ({gpus * expectation.memory_gib_per_gpu:g} GiB in total)",
            "use fewer GPUs of this machine, or train without offloading to the CPU; see verl issue 429",
        )
