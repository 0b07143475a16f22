# SPDX-License-Identifier: Apache-2.0
"""The kinds of failures of jobs, with a remedy for each. docs/failures.md describes them for users."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..io.output import one_line


class FailureKind(StrEnum):
    """The kind of a failure; docs/failures.md has a row for each."""

    CONFIG = "config"
    IMPORT = "import"
    MODEL = "model"
    DATA = "data"
    REWARD = "reward"
    SERVICE = "service"
    HOST_OOM = "host_oom"
    GPU_OOM = "gpu_oom"
    GPU_FAULT = "gpu_fault"
    LIMIT = "limit"
    COMMUNICATION = "communication"
    PORT_IN_USE = "port_in_use"
    DISK_FULL = "disk_full"
    STORAGE = "storage"
    NODE_LOST = "node_lost"
    HEAD_LOST = "head_lost"
    KILLED = "killed"
    ENGINE_LOST = "engine_lost"
    STALLED = "stalled"
    STOPPED = "stopped"
    DEADLINE = "deadline"
    NO_RESOURCES = "no_resources"
    DEPENDENCY = "dependency"
    TRANSFER_QUEUE = "transfer_queue"
    UNKNOWN = "unknown"

    def is_retryable(self, steps: int) -> bool:
        """Whether another attempt of the same job may succeed. steps: how many the failed attempt did."""
        if self in (FailureKind.COMMUNICATION, FailureKind.STORAGE):
            # Before the first step, an interface or a mount is configured wrongly, or a firewall is closed.
            return steps > 0
        lost = (FailureKind.NODE_LOST, FailureKind.HEAD_LOST, FailureKind.ENGINE_LOST)
        return self in (*lost, FailureKind.KILLED, FailureKind.GPU_FAULT, FailureKind.SERVICE)


# The kinds of failures that a lost node causes before Ray declares the node dead.
NODE_LOSS_SIGNS = (FailureKind.COMMUNICATION, FailureKind.KILLED, FailureKind.ENGINE_LOST, FailureKind.UNKNOWN)

# Ends the remedy of a failure after which the job can go on.
RESUME = " The job can resume from its last checkpoint."
DMESG_REMEDY = "Check dmesg on its node: the kernel kills processes for memory, the GPU driver for GPU errors."
REMEDIES = {
    FailureKind.CONFIG: "Correct the key or the value in the JobSpec.",
    FailureKind.IMPORT: "Correct the import, or add the module to the image or to PYTHONPATH (env_vars of the "
    "JobSpec).",
    FailureKind.MODEL: "Compare the model's config.json with the settings of the job, or stage the model again.",
    FailureKind.DATA: "Correct the dataset's parquet files, or the settings under data that name their columns.",
    FailureKind.REWARD: "Correct the reward function. check_reward of the JobSpec calls it on some rows before "
    "the job is submitted.",
    FailureKind.SERVICE: "Check the service, and whether nodes reach it: a proxy, a firewall, its load. A tracker can "
    "write to files instead (WANDB_MODE=offline in env_vars), or be left out of trainer.logger." + RESUME,
    FailureKind.HOST_OOM: "Reduce what runs beside the GPUs (data, reward and rollout workers, offloading, pinned "
    "memory), or use nodes with more memory.",
    FailureKind.GPU_OOM: "Lower the sizes of batches or the lengths of sequences, or use more GPUs. nvidia-smi shows "
    "whether other processes use the GPUs too.",
    FailureKind.GPU_FAULT: "Test the node's GPUs: nvidia-smi, nvidia-smi -q -d ECC, and Xid in dmesg; reset or replace "
    "them, and drain the node meanwhile. An attempt that follows avoids the node if the others have room." + RESUME,
    FailureKind.LIMIT: "Raise the limit of the nodes. A retry alone fails again.",
    FailureKind.COMMUNICATION: "Check that all nodes reach each other on the interface that GLOO_SOCKET_IFNAME and "
    "NCCL_SOCKET_IFNAME name. NCCL_DEBUG=INFO in env_vars shows which interface NCCL chose.",
    FailureKind.PORT_IN_USE: "End the process that holds the port, often one left by an earlier job, and submit again.",
    FailureKind.DISK_FULL: "Free space there, or keep fewer checkpoints (trainer.max_actor_ckpt_to_keep), then submit "
    "again.",
    FailureKind.STORAGE: "Check the file server and its mount." + RESUME,
    FailureKind.NODE_LOST: "Check the node: its machine, its container, its memory." + RESUME,
    FailureKind.HEAD_LOST: "Check the machine of the head." + RESUME,
    FailureKind.KILLED: DMESG_REMEDY + RESUME,
    FailureKind.ENGINE_LOST: "Read the engine's last lines in the log. " + DMESG_REMEDY + RESUME,
    FailureKind.STALLED: "Read the stacks in debug/ of the archive: they show what each process waits for.",
    FailureKind.STOPPED: "Nothing: the job was stopped on request.",
    FailureKind.DEADLINE: "Give the job more time." + RESUME,
    FailureKind.NO_RESOURCES: "Request less, or submit again when other jobs have ended.",
    FailureKind.DEPENDENCY: "Submit both jobs again, this one with the new id in depends_on or env_from.",
    FailureKind.TRANSFER_QUEUE: "Submit it again while no other job of ppo or grpo runs. Every job should have a "
    "TransferQueue of its own: check that nothing in the job's code or image changes ray.get_actor.",
    FailureKind.UNKNOWN: "Read the end of logs/driver.log in the archive.",
}

# The remedy if no node has the resources.
TOO_LARGE_REMEDY = (
    "Ask for less on one node (resources, or the pools and numbers of workers in trainer_overrides), or give the nodes "
    "more (ray_node_gpus, ray_node_cpus) with cluster_up.yml, then submit again."
)
NODE_REMOVED_REMEDY = "Nothing is wrong with the node." + RESUME


@dataclass(frozen=True)
class Failure:
    """Why a job failed, and what to do, as ``status.json`` has it."""

    # A kind that only another version of this collection has counts as unknown.
    kind: FailureKind = FailureKind.UNKNOWN
    reason: str = ""
    # The lines of the log that show it.
    lines: tuple[str, ...] = ()
    todo: str = ""
    # The address of the node at fault, as the log has it; "" for the driver's node, or if it is not one node's fault.
    node: str = ""

    def __post_init__(self) -> None:
        # Messages of Ray have a traceback in them.
        object.__setattr__(self, "reason", one_line(self.reason))


def failure(kind: str, reason: str) -> Failure:
    """A failure that is not read from a log, with the remedy of its kind."""
    failure_kind = FailureKind(kind)
    return Failure(failure_kind, reason, (), REMEDIES[failure_kind])
