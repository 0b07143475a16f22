# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a job failed, read from the end of its driver's log. docs/failures.md describes the same for users."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from .isolation import FOREIGN
from .output import DRIVER, FRAME, MARKS, last_lines, one_line, output_by_process, shorten, tracebacks


class FailureKind(StrEnum):
    """The kind of a failure; docs/failures.md has a row for each."""

    CONFIG = "config"
    IMPORT = "import"
    DATA = "data"
    REWARD = "reward"
    HOST_OOM = "host_oom"
    GPU_OOM = "gpu_oom"
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

    def retryable(self, steps: int) -> bool:
        """Whether a further attempt of the same job may succeed; `steps` are those that the failed attempt did."""
        if self in (FailureKind.COMMUNICATION, FailureKind.STORAGE):
            # Before the first step, an interface or a mount is configured wrongly, or a firewall is closed.
            return steps > 0
        lost = (FailureKind.NODE_LOST, FailureKind.HEAD_LOST, FailureKind.ENGINE_LOST)
        return self in (*lost, FailureKind.KILLED)


# The kinds of failure that a lost node causes before Ray declares it dead.
AMBIGUOUS = (FailureKind.COMMUNICATION, FailureKind.KILLED, FailureKind.ENGINE_LOST, FailureKind.UNKNOWN)


CONFIG, IMPORT, DATA, REWARD = FailureKind.CONFIG, FailureKind.IMPORT, FailureKind.DATA, FailureKind.REWARD
HOST_OOM, GPU_OOM, DISK_FULL = FailureKind.HOST_OOM, FailureKind.GPU_OOM, FailureKind.DISK_FULL
COMMUNICATION, PORT_IN_USE = FailureKind.COMMUNICATION, FailureKind.PORT_IN_USE
NODE_LOST, KILLED, UNKNOWN = FailureKind.NODE_LOST, FailureKind.KILLED, FailureKind.UNKNOWN

WHAT_TO_DO = {
    CONFIG: "Correct the key or the value in the JobSpec.",
    IMPORT: "Correct the import, or add the module to the image or to PYTHONPATH (env_vars of the JobSpec).",
    DATA: "Correct the dataset's parquet files, or the settings under data that name their columns.",
    REWARD: "Correct the reward function. check_reward of the JobSpec calls it on some rows before "
    "the job is submitted.",
    HOST_OOM: "Reduce what runs beside the GPUs (data, reward and rollout workers, offloading, pinned memory), "
    "or use nodes with more memory.",
    GPU_OOM: "Lower the sizes of batches or the lengths of sequences, or use more GPUs. nvidia-smi shows whether other "
    "processes use the GPUs too.",
    COMMUNICATION: "Check that all nodes reach each other on the interface that GLOO_SOCKET_IFNAME and "
    "NCCL_SOCKET_IFNAME name. NCCL_DEBUG=INFO in env_vars shows which interface NCCL chose.",
    PORT_IN_USE: "End the process that holds the port, often one left by an earlier job, and submit again.",
    DISK_FULL: "Free space there, or keep fewer checkpoints (trainer.max_actor_ckpt_to_keep), then submit again.",
    FailureKind.STORAGE: "Check the file server and its mount. The job can resume from its last checkpoint.",
    NODE_LOST: "Check the node: its machine, its container, its memory. The job can resume from its last checkpoint.",
    FailureKind.HEAD_LOST: "Check the machine of the head. The job can resume from its last checkpoint.",
    KILLED: "Check dmesg on the node: the kernel kills processes for memory, the GPU driver for GPU errors. "
    "The job can resume from its last checkpoint.",
    FailureKind.ENGINE_LOST: "Read the engine's last lines in the log, and dmesg on its node: the kernel kills "
    "processes for memory, the GPU driver for GPU errors.",
    FailureKind.STALLED: "Read the stacks in debug/ of the archive: they show what each process waits for.",
    FailureKind.STOPPED: "Nothing: the job was stopped on request.",
    FailureKind.DEADLINE: "Give the job more time, or resume it from its last checkpoint.",
    FailureKind.NO_RESOURCES: "Request less, or submit again when other jobs have ended.",
    FailureKind.DEPENDENCY: "Submit both jobs again, this one with the new id in depends_on.",
    FailureKind.TRANSFER_QUEUE: "Submit it again while no other job of ppo or grpo runs. Every job should have a "
    "TransferQueue of its own: check that nothing in the job's code or image changes ray.get_actor.",
    UNKNOWN: "Read the end of logs/driver.log in the archive.",
}

NODE_REMOVED = "Nothing is wrong with the node. The job can resume from its last checkpoint on other workers."


@dataclass(frozen=True)
class Failure:
    """Why a job failed, the log lines that show it, and what to do."""

    # A kind that only another version of this collection has counts as unknown.
    kind: FailureKind = UNKNOWN
    reason: str = ""
    lines: tuple[str, ...] = ()
    todo: str = ""

    def __post_init__(self) -> None:
        # Messages of Ray have a traceback in them.
        object.__setattr__(self, "reason", one_line(self.reason))


@dataclass(frozen=True)
class Rule:
    """A pattern in the log that identifies a kind of failure, and the reason to report, with the pattern's groups."""

    kind: FailureKind
    pattern: str
    reason: str
    # The pattern matches an exception, and this matches its traceback; `{file}` and `{line}` are where it was raised.
    below: str = ""
    # The pattern may match any line of any process; otherwise only the exception with which the trainer ends.
    anywhere: bool = False
    todo: str = ""


# Actors and nodes that die raise through the code of configuration, datasets and rewards, which is not at fault.
NOT_RAY = r"(?P<error>(?!ray\.).+)"
CONFIG_CODE = r'File "[^"\n]*/verl/(?:utils/config\.py|workers/config/|trainer/config/)'
DATA_CODE = r'File "[^"\n]*/(?:verl/utils/dataset|torch/utils/data|torchdata|datasets|pyarrow)/'
REWARD_CODE = r'File "[^"\n]*/verl/(?:experimental/reward_loop|workers/reward_manager|trainer/ppo/reward\.py)'

# torch does not report why it could not write.
UNWRITTEN = "a checkpoint could not be written"
BROKEN = (
    "Input/output error|Remote I/O error|Stale file handle|Read-only file system|Transport endpoint is not connected"
)
# The share of a GPU's memory that the inference engine takes, for its weights and its cache.
CACHE = "actor_rollout_ref.rollout.gpu_memory_utilization"
# A name, once it has taken the place of Ray's id.
NODE = r"(?P<node>[\w-]+(?:\.[\w-]+)*)"
NO_HEAD = "Failed to connect to GCS|WrongClusterID"
UNSCHEDULABLE = r"^\S*(?:Task|Actor)UnschedulableError: .*\bNodeAffinitySchedulingStrategy doesn't exist any more.*"

# A job can write any line: each pattern takes a time in proportion to its length. What has to follow somewhere is a
# lookahead from the beginning of the line, because two `.*` in a row would try every pair of places.
# The first rule that matches decides. Causes come before the failures that they lead to.
CAUSES = (
    # The message of isolation.refuse_foreign.
    Rule(FailureKind.TRANSFER_QUEUE, rf"^\S*Error: (?P<what>\w+ {FOREIGN}: .*)", "{what}"),
    Rule(NODE_LOST, rf"^.*\bits node has died\. Node Id: {NODE}.*", "node {node} was lost", anywhere=True),
    Rule(NODE_LOST, r"^(?=.*Owner's node has crashed).* Owner Ip address: (?P<ip>\S+) .*", "node {ip} was lost"),
    Rule(NODE_LOST, r"^\S*(?:NodeDied|LocalRayletDied)Error: (?P<what>.*)", "{what}"),
    # A task or an actor is pinned to a node that is gone.
    Rule(NODE_LOST, UNSCHEDULABLE, "a worker left the cluster while the job placed its processes on it"),
    Rule(FailureKind.HEAD_LOST, rf"^.*(?P<what>(?:{NO_HEAD}).*)", "the head was lost: {what}", anywhere=True),
    # /dev/shm is memory, although the error message is that of a disk.
    Rule(
        HOST_OOM,
        r"^(?:(?=.*/dev/shm)(?=.*No space left on device)|(?=.*out of shared memory)).*",
        "shared memory is full: {all}",
        anywhere=True,
        todo="Give the nodes a larger /dev/shm.",
    ),
    Rule(
        HOST_OOM,
        r"^.*\bkilled due to the node running low on memory\.\s*(?:Memory on the node \(IP: (?P<ip>[^,\s]+).*)?",
        "the node {ip} ran out of memory: Ray killed a process of the job",
        anywhere=True,
    ),
    Rule(HOST_OOM, r"^\S*: .*(?P<what>DefaultCPUAllocator: .*|std::bad_alloc.*|Cannot allocate memory.*)", "{what}"),
    Rule(HOST_OOM, r"^(?:[\w.]+\.)?_?(?:Array)?MemoryError\b.*", "{all}"),
    Rule(
        GPU_OOM,
        r"^\S*Error: (?:CUDA|HIP|NPU) out of memory\. Tried to allocate (?P<size>[\d.]+ \w+)[. (]+GPU (?P<gpu>\d+).*",
        "GPU {gpu} ran out of memory: {size} could not be allocated",
        anywhere=True,
    ),
    Rule(GPU_OOM, r"^\S*Error: (?P<what>(?:CUDA|HIP|NPU)(?: error:)? out of memory.*)", "{what}", anywhere=True),
    Rule(
        GPU_OOM,
        r"^ValueError: (?P<what>Free memory on device.*)",
        "{what}",
        anywhere=True,
        todo=f"Lower {CACHE}, or free the memory: nvidia-smi shows which processes use it.",
    ),
    Rule(
        GPU_OOM,
        r"^ValueError: (?P<what>(?:No available memory for the cache|.* KV cache is needed).*)",
        "{what}",
        anywhere=True,
        todo=f"Raise {CACHE}, lower actor_rollout_ref.rollout.max_model_len, or share the model between more GPUs with "
        "actor_rollout_ref.rollout.tensor_model_parallel_size.",
    ),
    Rule(DISK_FULL, r"^OSError: \[Errno \d+\] (?P<what>(?:No space left on device|Disk quota exceeded).*)", "{what}"),
    Rule(FailureKind.STORAGE, rf"^OSError: \[Errno \d+\] (?P<what>(?:{BROKEN}).*)", "{what}"),
    Rule(
        DISK_FULL,
        r"(?P<error>RuntimeError: .*(?:PytorchStreamWriter failed writing|iostream error|unexpected pos).*)",
        UNWRITTEN + " to {checkpoints}: {error}",
        below=r"torch/serialization\.py",
    ),
    Rule(
        PORT_IN_USE,
        r"^(?:\S*Error|ERROR): (?=.*(?:EADDRINUSE|[Aa]ddress already in use)).*(?:port: |', |\]:)(?P<port>\d+).*",
        "port {port} is in use",
        anywhere=True,
    ),
    Rule(
        PORT_IN_USE,
        r"^\S*Error: .*Address already in use \(addr='\S+:(?P<port>\d+)'.*",
        "port {port} is in use",
        anywhere=True,
    ),
    Rule(PORT_IN_USE, r"^\S*Error: .*(?:EADDRINUSE|[Aa]ddress already in use).*", "{all}", anywhere=True),
    Rule(CONFIG, r"^(?:\S+: )?Could not override '(?P<key>[^'\n]+)'.*(?:\n.+)?", "the configuration has no key {key}"),
    Rule(CONFIG, r"^hydra\.errors\.InstantiationException: .*\n(?P<what>.+)\nfull_key: (?P<key>.+)", "{key}: {what}"),
    Rule(CONFIG, r"^(?:hydra|omegaconf)\.\S+: (?P<what>.+)(?:\n .*)*", "{what}"),
    Rule(CONFIG, NOT_RAY, "{error}", below=CONFIG_CODE),
    Rule(CONFIG, r"^ValueError: (?P<what>batch_size should be a positive integer value.*)", "{what}"),
    Rule(CONFIG, r"^ValueError: (?P<what>Total available GPUs .*)", "{what}"),
    Rule(CONFIG, r"^\S+: (?P<what>Failed to merge the Job's runtime env.*)", "{what}"),
    Rule(IMPORT, r"^The job was not started: (?P<what>.+)", "{what}"),
    Rule(IMPORT, r"(?P<error>(?:ModuleNotFound|Import)Error: .*)", "{error} ({file}, line {line})", below="File"),
    Rule(IMPORT, r"^\S+: (?P<what>(?:Error loading|Object not found in|Custom) module\b.*)", "{what}"),
    Rule(IMPORT, r"^(?=\S*python)\S+: (?P<what>No module named .+|Error while finding module .+)", "{what}"),
    Rule(KILLED, r"^RuntimeError: (?P<what>DataLoader worker .*(?:killed by signal|exited unexpectedly).*)", "{what}"),
    Rule(DATA, r"KeyError: (?P<key>.+)", "the dataset has no column {key} ({train_files})", below=DATA_CODE),
    Rule(DATA, NOT_RAY, "{error} ({train_files})", below=DATA_CODE),
    Rule(DATA, r"^AssertionError: (?P<what>(?:Train|Validation) dataloader is empty.*)", "{what} ({train_files})"),
    Rule(
        DATA,
        r"KeyError: (?P<key>'(?:reward_model|ground_truth|data_source)')",
        "the dataset has no column {key}, which rewards need ({train_files})",
        below=REWARD_CODE,
    ),
    Rule(REWARD, NOT_RAY, "{error} ({file}, line {line})", below=REWARD_CODE),
    Rule(REWARD, NOT_RAY, "the reward function did not return a number: {error}", below=r"= reward_score\b"),
    Rule(REWARD, r"^KeyError: .*\brm_scores\b.*", "the reward function returned None: {all}"),
)

# Messages that also follow from a lost node or a dead process.
CONSEQUENCES = (
    Rule(NODE_LOST, rf"^(?=.* has been marked dead).*\bnode id: {NODE}.*", "node {node} was lost", anywhere=True),
    # The driver gets this error at once; Ray declares a node dead only after several missed heartbeats.
    Rule(
        NODE_LOST,
        r"^\S*ActorUnavailableError: (?>.*?(?=RpcError))(?P<what>RpcError.*?) rpc_code.*",
        "a node or its network was lost: an actor no longer answers ({what})",
    ),
    Rule(
        HOST_OOM,
        r"^(?=.*killed due to memory pressure)(?=.*\bIP: (?P<ip>[^)\s]+)\)).* (?P<count>[1-9]\d*) Workers .*",
        "the node {ip} ran out of memory: Ray killed {count} of its processes",
        anywhere=True,
    ),
    # torchrun names the rank that ended first; the others have lost their connections to it, or were ended.
    Rule(
        KILLED,
        r"^Root Cause .*\n\[\d+\]:\n(?:  (?:time|host)\b.*\n){,2}  rank +: (?P<rank>\d+) .*\n"
        r"(?:  (?:exitcode|error_file)\b.*\n){,2}"
        r"  traceback +: Signal \d+ \((?P<signal>\w+)\) received by PID (?P<pid>\d+)",
        "rank {rank} (pid={pid}) was killed by {signal}",
        anywhere=True,
    ),
    Rule(KILLED, r"^\S*WorkerCrashedError: (?P<what>.*)", "a worker process of Ray was killed or crashed: {what}"),
    Rule(COMMUNICATION, r"^\S+: .*(?P<what>Unable to find address for: \S+).*", "gloo: {what}"),
    Rule(COMMUNICATION, r"^\S+: Gloo connectFullMesh failed with (?:\[\S+\] )?(?P<what>.*)", "gloo: {what}"),
    Rule(
        COMMUNICATION,
        r"^(?=.*Watchdog caught collective operation timeout: Work(?P<library>\w+)\()"
        r"(?=.*OpType=(?P<name>\w+))(?=.* ran for (?P<ms>\d+) milliseconds).*",
        "{library}: {name} did not finish within {ms} ms",
        anywhere=True,
    ),
    Rule(COMMUNICATION, r"^\S+: (?P<what>NCCL error in: (?!.*remote process exited).*)(?:\n.+){,3}", "{what}"),
    Rule(COMMUNICATION, r"^\S*Dist(?:Store|Network)Error: (?P<what>.*)", "{what}"),
    Rule(
        KILLED,
        r"^.*\*\*\* (?P<signal>SIG(?:SEGV|BUS|FPE|ILL|ABRT)) received at time.*",
        "a process crashed with {signal}",
        anywhere=True,
    ),
    Rule(
        KILLED,
        r"^\tclass_name: (?P<actor>.*)\n(?:\t(?!pid: ).*\n){,30}\tpid: (?P<pid>.*)\n"
        r"(?:\t(?!ip: ).*\n){,30}\tip: (?P<ip>.*)\n"
        r".*Worker unexpectedly exits with a connection error code 2\b.*",
        "actor {actor} (pid={pid}, ip={ip}) was killed or crashed",
    ),
    Rule(COMMUNICATION, r"^\S+: (?>.*?(?=Read error ))(?P<what>Read error .*Connection reset by peer).*", "{what}"),
    Rule(
        COMMUNICATION,
        r"^\S+: .*(?P<what>Connection closed by peer(?: \S+\d)?|"
        r"Timed out waiting \d+ms for \w+ operation|NCCL error in: .*).*",
        "{what}",
    ),
    Rule(KILLED, r"^.*\*\*\* (?P<signal>SIG\w+) received at time.*", "the trainer was ended by {signal}"),
)

# Hydra prints the exception with which the trainer ended after this line.
HYDRA_ERROR = "Error executing job with overrides:"
SETTINGS = {
    "train_files": re.compile(r"\bdata\.train_files=([^',\]\s]+)"),
    "checkpoints": re.compile(r"\btrainer\.default_local_dir=([^',\]\s]+)"),
}
ERROR = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)\b.*", re.MULTILINE)
# With this exception verl reports only that every trajectory failed; the cause is in the output of its workers.
NO_TRAJECTORIES = "no materializable trajectories"
# What the driver of torchrun.py writes; the cause is in the output of a rank.
TORCHRUN_FAILED = "torchrun has failed on a node"


def failure(kind: str, reason: str) -> Failure:
    """A failure that is not read from a log."""
    known = FailureKind(kind)
    return Failure(known, reason, (), WHAT_TO_DO[known])


def classify(log: str, exit_code: int | None, steps: int = 0) -> Failure:
    """Why a job failed.

    log: the end of its driver's log. exit_code: the trainer's; None if its end was not observed. steps: those that the
    attempt did.
    """
    outputs = output_by_process(log)
    settings = {name: match[1] if (match := setting.search(log)) else "?" for name, setting in SETTINGS.items()}
    # A trainer that was killed or lost has no final exception.
    raised = exit_code is not None and 0 < exit_code <= 128
    final = outputs[DRIVER].rpartition(HYDRA_ERROR)[2] if raised else ""
    elsewhere = any(told in final for told in (NO_TRAJECTORIES, TORCHRUN_FAILED))
    exceptions = outputs if elsewhere else {DRIVER: final}

    def first_match(rules: Sequence[Rule]) -> Failure | None:
        found = (match_rule(rule, outputs if rule.anywhere else exceptions, settings) for rule in rules)
        return next(filter(None, found), None)

    if cause := first_match(CAUSES):
        return cause
    if exit_code is None:
        return Failure(NODE_LOST, "the driver's node was lost", last_lines(log), WHAT_TO_DO[NODE_LOST])
    if consequence := first_match(CONSEQUENCES):
        # The step decides whether a failed communication is retried.
        when = f", after step {steps}" if steps else ", before the first step"
        is_communication = consequence.kind is COMMUNICATION
        return replace(consequence, reason=consequence.reason + when) if is_communication else consequence
    signal_number = -exit_code if exit_code < 0 else exit_code - 128
    if signal_number > 0:
        reason = f"the trainer was killed by {signal_name(signal_number)}"
        return Failure(KILLED, reason, last_lines(log), WHAT_TO_DO[KILLED])
    errors = ERROR.findall(final)
    reason = f"the trainer ended with exit code {exit_code}" + (f": {errors[-1]}" if errors else "")
    return Failure(UNKNOWN, reason, last_lines(final.strip() or log), WHAT_TO_DO[UNKNOWN])


def match_rule(rule: Rule, outputs: Mapping[str, str], settings: Mapping[str, str]) -> Failure | None:
    for process, text in outputs.items():
        for lines, groups in matches(rule, text):
            reason = rule.reason.format(**settings, **groups, all=lines[-1])
            # The driver's exception names the process itself.
            where = f" ({process})" if process and rule.anywhere else ""
            prefix = f"({process}) " if process else ""
            shown = shorten([prefix + line for line in lines if not MARKS.match(line)])
            return Failure(rule.kind, reason + where, shown, rule.todo or WHAT_TO_DO[rule.kind])
    return None


def matches(rule: Rule, text: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    if not rule.below:
        for match in re.finditer(rule.pattern, text, re.MULTILINE):
            yield match[0].split("\n"), group_values(match)
        return
    for stack, error in tracebacks(text):
        exception = re.match(rule.pattern, error)
        if exception and any(re.search(rule.below, line) for line in stack):
            frames = [frame for line in stack for frame in FRAME.findall(line)]
            file, line = frames[-1] if frames else ("?", "?")
            yield [*stack, error], {**group_values(exception), "file": file, "line": line}


def group_values(match: re.Match[str]) -> dict[str, str]:
    return {name: value or "" for name, value in match.groupdict().items()}


def signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
