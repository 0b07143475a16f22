# SPDX-License-Identifier: Apache-2.0
"""The plan of a job, ``config/plan.json`` in its archive: the submission writes it, launcher and steward follow it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# What launches the trainer's processes: verl itself with Ray, or torchrun on each node.
RAY, TORCHRUN = "ray", "torchrun"
# The workload that is any command.
COMMAND = "command"
# verl's setting for jobs that only validate.
VAL_ONLY = "trainer.val_only"


@dataclass(frozen=True)
class Pool:
    """GPUs and CPUs on each of `nnodes` workers. name: of verl's resource pool; "" for that of the trainer."""

    name: str = ""
    nnodes: int = 0
    gpus: float = 0
    cpus: float = 0

    @property
    def all_gpus(self) -> float:
        return self.nnodes * self.gpus


@dataclass(frozen=True)
class Plan:
    """The plan of a job: its program, its submission to Ray, and its treatment while it waits, runs and fails.

    Durations are in seconds; None means no limit. The defaults are those of a key that an older archive lacks.
    """

    code_path: str = ""
    code_id: str = ""
    # The trainer's Python module, and its Hydra overrides.
    module: str = ""
    overrides: tuple[str, ...] = ()
    # Environment of the trainer's own process, in addition to that of the whole job.
    driver_env: Mapping[str, str] = field(default_factory=dict)
    address: str = "http://127.0.0.1:8265"
    # The command that runs in place of a trainer; empty for a trainer.
    command: tuple[str, ...] = ()
    # The working directory of trainer or command; "" for that of the driver.
    directory: str = ""
    # Shell commands before and after each attempt.
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    # The command of the driver for Ray, without the number of the attempt, and the resources that the driver reserves.
    entrypoint: str = ""
    entrypoint_resources: Mapping[str, float] = field(default_factory=dict)
    entrypoint_num_cpus: float = 1
    entrypoint_num_gpus: float = 0
    workload: str = ""
    # RAY or TORCHRUN.
    launcher: str = RAY
    nnodes: int = 0
    gpus_per_node: int = 0
    # The CPUs that the job's processes reserve on each of its nodes, without its driver.
    cpus_per_node: float = 0
    # The pools beside the trainer's pool.
    pools: tuple[Pool, ...] = ()
    # The names of its secrets, without their values.
    secrets: tuple[str, ...] = ()
    retries: int = 0
    # What to do with a trainer that stalls: "report" or "stop".
    on_stall: str = "report"
    deadline: float | None = None
    wait_for_resources: float | None = None
    # Each tag as name=value.
    tags: tuple[str, ...] = ()
    priority: int = 0
    queue_patience: float | None = None
    start_timeout: float | None = None
    stall_timeout: float | None = None
    # Whether the trainer keeps its samples in verl's TransferQueue.
    transfer_queue: bool = False
    # The number of storage units of TransferQueue. Each reserves a CPU of a worker.
    storage_units: int = 0
    # A backend of TransferQueue that cannot serve two jobs of a cluster; "" for the others.
    exclusive_backend: str = ""
    # The job that has to succeed before this one starts; None if there is none, or once this job was admitted.
    depends_on: str | None = None
    # The jobs whose servers have to answer first, by the environment variables that get their addresses.
    env_from: Mapping[str, str] = field(default_factory=dict)
    # The port and path at which the job's server answers once it can be used; None for jobs without a server.
    ready_port: int | None = None
    ready_path: str = "/"
    # The number of steps that the data is enough for; None if unknown, 0 if the job only validates.
    steps: int | None = None
    resumed_from: str | None = None
    resumed_from_step: int | None = None

    @property
    def all_pools(self) -> tuple[Pool, ...]:
        if self.command and not self.nnodes:
            return (Pool("", 1, self.entrypoint_num_gpus, self.entrypoint_num_cpus),)
        return (Pool("", self.nnodes, self.gpus_per_node, self.cpus_per_node), *self.pools)

    @property
    def gpus(self) -> int:
        """The number of GPUs of all pools."""
        return int(sum(pool.all_gpus for pool in self.all_pools))
