# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Why a job failed, read from the end of its driver's log. docs/failures.md says the same for people."""

from __future__ import annotations

import dataclasses
import re
import signal
from collections.abc import Iterator
from typing import Any

WHAT_TO_DO = {
    "config": "Correct the key or the value in the JobSpec.",
    "import": "Correct the import, or put the module into the image or on PYTHONPATH (env_vars of the JobSpec).",
    "data": "Correct the dataset's parquet files, or the settings under data that name their columns.",
    "reward": "Correct the reward function; call it once on a row of the dataset before the next run.",
    "host_oom": "Lower what runs beside the GPUs (workers of data, reward and rollout, offloading, pinned memory), "
    "or use nodes with more memory.",
    "gpu_oom": "Lower actor_rollout_ref.rollout.gpu_memory_utilization, micro batch sizes or lengths, or use more "
    "GPUs; nvidia-smi shows whether others use them too.",
    "communication": "Check that all nodes reach each other on the interface that GLOO_SOCKET_IFNAME and "
    "NCCL_SOCKET_IFNAME name; NCCL_DEBUG=INFO in env_vars shows what NCCL chose.",
    "port_in_use": "End what holds the port, often a process left by an earlier job, and submit again.",
    "disk_full": "Free space there, or keep fewer checkpoints (trainer.max_actor_ckpt_to_keep), then submit again.",
    "node_lost": "Look at the node: its machine, its container, its memory. "
    "The job can go on from its last checkpoint.",
    "killed": "Look on the node at dmesg: the kernel kills for memory, the driver of the GPU for its errors. "
    "The job can go on from its last checkpoint.",
    "stalled": "Read the stacks in the archive's debug/: they show what each process waits for.",
    "stopped": "Nothing: somebody asked for it.",
    "deadline": "Give the job more time, or let it go on from its last checkpoint.",
    "no_resources": "Ask for less, or submit when other jobs have ended.",
    "unknown": "Read the end of logs/driver.log in the archive.",
}
KINDS = tuple(WHAT_TO_DO)
MAX_LINES = 8
MAX_LENGTH = 400


@dataclasses.dataclass(frozen=True)
class Failure:
    """Why a job failed, the lines of its log that say so, and what to do."""

    kind: str
    reason: str
    lines: tuple[str, ...]
    todo: str

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Rule:
    """What the log of one kind of failure says, and how to say it in a line, with the groups of the pattern."""

    kind: str
    pattern: str
    reason: str
    # The pattern is an exception's, and this stands in its traceback; `{file}` and `{line}` say where it was raised.
    below: str = ""
    # Whoever says it, and whenever; otherwise only the exception with which the trainer ends.
    anywhere: bool = False
    todo: str = ""


# What passes through them is no error of theirs: actors and nodes that die.
NOT_RAY = r"(?P<error>(?!ray\.).+)"
CONFIG_CODE = r'File ".*/verl/(?:utils/config\.py|workers/config/|trainer/config/)'
DATA_CODE = r'File ".*/(?:verl/utils/dataset|torch/utils/data|torchdata|datasets|pyarrow)/'
REWARD_CODE = r'File ".*/verl/(?:experimental/reward_loop|workers/reward_manager|trainer/ppo/reward\.py)'

# The first rule that applies decides, so that what causes others stands before them.
CAUSES = (
    Rule("node_lost", r"^.*\bits node has died\. Node Id: (?P<node>\w+).*", "the node {node} was lost", anywhere=True),
    Rule("node_lost", r"^.* Owner Ip address: (?P<ip>\S+) .*Owner's node has crashed.*", "the node {ip} was lost"),
    Rule("node_lost", r"^\S*(?:NodeDied|LocalRayletDied)Error: (?P<what>.*)", "{what}"),
    Rule("node_lost", r"^.*(?P<what>Failed to connect to GCS.*)", "the head was lost: {what}", anywhere=True),
    # /dev/shm is memory, although the error is a disk's.
    Rule(
        "host_oom",
        r"^.*(?:/dev/shm.*No space left on device|No space left on device.*/dev/shm|out of shared memory).*",
        "the shared memory is full: {all}",
        anywhere=True,
        todo="Give the nodes a larger /dev/shm.",
    ),
    Rule(
        "host_oom",
        r"^.*\bkilled due to the node running low on memory\.\s*(?:Memory on the node \(IP: (?P<ip>[^,\s]+).*)?",
        "the node {ip} had no memory left: Ray killed a process of the job",
        anywhere=True,
    ),
    Rule("host_oom", r"^\S*: .*(?P<what>DefaultCPUAllocator: .*|std::bad_alloc.*|Cannot allocate memory.*)", "{what}"),
    Rule("host_oom", r"^(?:[\w.]+\.)?_?(?:Array)?MemoryError\b.*", "{all}"),
    Rule(
        "gpu_oom",
        r"^\S*Error: (?:CUDA|HIP|NPU) out of memory\. Tried to allocate (?P<size>[\d.]+ \w+)[. (]+GPU (?P<gpu>\d+).*",
        "GPU {gpu} has no {size} left",
        anywhere=True,
    ),
    Rule("gpu_oom", r"^\S*Error: (?P<what>(?:CUDA|HIP|NPU)(?: error:)? out of memory.*)", "{what}", anywhere=True),
    Rule(
        "gpu_oom",
        r"^ValueError: (?P<what>(?:Free memory on device|No available memory for the cache|.* KV cache is needed).*)",
        "{what}",
        anywhere=True,
    ),
    Rule("disk_full", r"^OSError: \[Errno \d+\] (?P<what>(?:No space left on device|Disk quota exceeded).*)", "{what}"),
    # torch does not say why it could not write.
    Rule(
        "disk_full",
        r"(?P<error>RuntimeError: .*(?:PytorchStreamWriter failed writing|iostream error|unexpected pos).*)",
        "a checkpoint could not be written to {checkpoints}: {error}",
        below=r"torch/serialization\.py",
    ),
    Rule(
        "port_in_use",
        r"^(?:\S*Error|ERROR): .*(?:port: |', |\]:)(?P<port>\d+).*(?:EADDRINUSE|[Aa]ddress already in use).*",
        "port {port} is in use",
        anywhere=True,
    ),
    Rule(
        "port_in_use",
        r"^\S*Error: .*Address already in use \(addr='\S+:(?P<port>\d+)'.*",
        "port {port} is in use",
        anywhere=True,
    ),
    Rule("port_in_use", r"^\S*Error: .*(?:EADDRINUSE|[Aa]ddress already in use).*", "{all}", anywhere=True),
    Rule(
        "config", r"^(?:\S+: )?Could not override '(?P<key>[^'\n]+)'.*(?:\n.+)?", "the configuration has no key {key}"
    ),
    Rule(
        "config",
        r"^hydra\.errors\.InstantiationException: .*\n(?P<what>.+)\nfull_key: (?P<key>.+)",
        "{key}: {what}",
    ),
    Rule("config", r"^(?:hydra|omegaconf)\.\S+: (?P<what>.+)(?:\n .*)*", "{what}"),
    Rule("config", NOT_RAY, "{error}", below=CONFIG_CODE),
    Rule("config", r"^ValueError: (?P<what>batch_size should be a positive integer value.*)", "{what}"),
    Rule("config", r"^ValueError: (?P<what>Total available GPUs .*)", "{what}"),
    Rule("config", r"^\S+: (?P<what>Failed to merge the Job's runtime env.*)", "{what}"),
    Rule("import", r"^The job ends before it starts: (?P<what>.+)", "{what}"),
    Rule("import", r"(?P<error>(?:ModuleNotFound|Import)Error: .*)", "{error} ({file}, line {line})", below="File"),
    Rule("import", r"^\S+: (?P<what>(?:Error loading|Object not found in|Custom) module\b.*)", "{what}"),
    Rule("import", r"^\S*python\S*: (?P<what>No module named .+|Error while finding module .+)", "{what}"),
    Rule(
        "killed", r"^RuntimeError: (?P<what>DataLoader worker .*(?:killed by signal|exited unexpectedly).*)", "{what}"
    ),
    Rule("data", r"KeyError: (?P<key>.+)", "the dataset has no column {key} ({train_files})", below=DATA_CODE),
    Rule("data", NOT_RAY, "{error} ({train_files})", below=DATA_CODE),
    Rule("data", r"^AssertionError: (?P<what>(?:Train|Validation) dataloader is empty.*)", "{what} ({train_files})"),
    Rule(
        "data",
        r"KeyError: (?P<key>'(?:reward_model|ground_truth|data_source)')",
        "the dataset has no column {key}, which rewards need ({train_files})",
        below=REWARD_CODE,
    ),
    Rule("reward", NOT_RAY, "{error} ({file}, line {line})", below=REWARD_CODE),
    Rule("reward", NOT_RAY, "the reward function did not return a number: {error}", below=r"= reward_score\b"),
    Rule("reward", r"^KeyError: .*\brm_scores\b.*", "the reward function returned None: {all}"),
)

# What others say too when a node is lost or a process dies.
CONSEQUENCES = (
    Rule(
        "node_lost", r"^.*\bnode id: (?P<node>\w+).* has been marked dead.*", "the node {node} was lost", anywhere=True
    ),
    # What a driver sees at once; that a node is dead Ray only says after some missed heartbeats.
    Rule(
        "node_lost",
        r"^\S*ActorUnavailableError: .*(?P<what>RpcError.*?) rpc_code.*",
        "a node was lost, or its network: an actor does not answer any more ({what})",
    ),
    Rule(
        "host_oom",
        r"^.* (?P<count>[1-9]\d*) Workers .*killed due to memory pressure.*\bIP: (?P<ip>[^)\s]+)\).*",
        "the node {ip} had no memory left: Ray killed {count} of its processes",
        anywhere=True,
    ),
    Rule("communication", r"^\S+: .*(?P<what>Unable to find address for: \S+).*", "gloo: {what}"),
    Rule("communication", r"^\S+: Gloo connectFullMesh failed with (?:\[\S+\] )?(?P<what>.*)", "gloo: {what}"),
    Rule(
        "communication",
        r"^.*Watchdog caught collective operation timeout: Work(?P<library>\w+)\(.*OpType=(?P<name>\w+).* ran for "
        r"(?P<ms>\d+) milliseconds.*",
        "{library}: {name} had no end after {ms} ms",
        anywhere=True,
    ),
    Rule("communication", r"^\S+: (?P<what>NCCL error in: (?!.*remote process exited).*)(?:\n.+){,3}", "{what}"),
    Rule("communication", r"^\S*Dist(?:Store|Network)Error: (?P<what>.*)", "{what}"),
    Rule(
        "killed",
        r"^.*\*\*\* (?P<signal>SIG(?:SEGV|BUS|FPE|ILL|ABRT)) received at time.*",
        "a process crashed with {signal}",
        anywhere=True,
    ),
    Rule(
        "killed",
        r"^\tclass_name: (?P<actor>.*)\n(?:\t.*\n)*?\tpid: (?P<pid>.*)\n(?:\t.*\n)*?\tip: (?P<ip>.*)\n"
        r".*Worker unexpectedly exits with a connection error code 2\b.*",
        "the actor {actor} (pid={pid}, ip={ip}) was killed, or it crashed",
    ),
    Rule(
        "communication",
        r"^\S+: .*(?P<what>Connection closed by peer(?: \S+\d)?|Read error .*Connection reset by peer|"
        r"Timed out waiting \d+ms for \w+ operation|NCCL error in: .*).*",
        "{what}",
    ),
    Rule("killed", r"^.*\*\*\* (?P<signal>SIG\w+) received at time.*", "the trainer was ended by {signal}"),
)

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
# Who wrote a line, as Ray, torch and vLLM say it, one before the other.
ORIGIN = re.compile(
    r"\((?P<process>(?:[^()]* )?pid=\d+[^()]*|raylet[^()]*|autoscaler[^()]*)\) |\[rank\d+\]: ?"
    r"|(?:ERROR|WARNING|INFO) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]+\] ?"
)
# Behind it Hydra shows the exception with which the trainer ended.
LAST_WORDS = "Error executing job with overrides:"
SETTINGS = {
    "train_files": re.compile(r"\bdata\.train_files=([^',\]\s]+)"),
    "checkpoints": re.compile(r"\btrainer\.default_local_dir=([^',\]\s]+)"),
}
DRIVER = ""
TRACEBACK = re.compile(r"^(?P<stack>  File .*\n(?:[ \t].*\n)*)(?P<error>\S.*)", re.MULTILINE)
FRAME = re.compile(r'^  File "(.+)", line (\d+)', re.MULTILINE)
ERROR = re.compile(r"^[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt)\b.*", re.MULTILINE)
# Python marks with these the part of a line where an exception arose.
MARKS = re.compile(r"[\s~^]*$")
# With this exception verl only says that every trajectory failed; why stands in the output of its workers.
NO_TRAJECTORIES = "no materializable trajectories"


def failure(kind: str, reason: str) -> Failure:
    """A failure that no log tells: stalled, stopped, deadline, no_resources."""
    return Failure(kind, reason, (), WHAT_TO_DO[kind])


def retryable(failure_kind: str, steps: int) -> bool:
    """Whether the same job may do better the next time; `steps` are those that this attempt made."""
    return failure_kind in ("node_lost", "killed") or (failure_kind == "communication" and steps > 0)


def classify(log: str, exit_code: int | None, steps: int = 0) -> Failure:
    """Why a job failed: the end of its log, the trainer's exit code (None when nobody has seen it end), its steps."""
    said = by_process(log)
    settings = {name: match[1] if (match := setting.search(log)) else "?" for name, setting in SETTINGS.items()}
    everybody = list(said.items())
    # Only who ends by an exception has last words.
    last = said[DRIVER].rpartition(LAST_WORDS)[2] if exit_code is not None and 0 < exit_code <= 128 else ""
    words = everybody if NO_TRAJECTORIES in last else [(DRIVER, last)]
    for rule in CAUSES:
        if found := apply(rule, everybody if rule.anywhere else words, settings):
            return found
    if exit_code is None:
        return Failure("node_lost", "the driver's node was lost", ending(log), WHAT_TO_DO["node_lost"])
    for rule in CONSEQUENCES:
        if found := apply(rule, everybody if rule.anywhere else words, settings):
            # Whether it is worth another try depends on it.
            when = f", after step {steps}" if steps else ", before the first step"
            return dataclasses.replace(found, reason=found.reason + when) if found.kind == "communication" else found
    signal_number = -exit_code if exit_code < 0 else exit_code - 128
    if signal_number > 0:
        return Failure(
            "killed", f"the trainer was killed by {signal_name(signal_number)}", ending(log), WHAT_TO_DO["killed"]
        )
    errors = ERROR.findall(last)
    reason = f"the trainer ended with exit code {exit_code}" + (f": {errors[-1]}" if errors else "")
    return Failure("unknown", one_line(reason), ending(last.strip() or log), WHAT_TO_DO["unknown"])


def by_process(log: str) -> dict[str, str]:
    """What each process wrote, in its own order: the lines of many are mixed in a driver's log."""
    said: dict[str, list[str]] = {DRIVER: []}
    for line in ANSI.sub("", log).split("\n"):
        # A progress bar goes on at the line's beginning.
        text = line.rstrip().rpartition("\r")[2]
        processes: list[str] = []
        while match := ORIGIN.match(text):
            processes += filter(None, [match["process"]])
            text = text[match.end() :]
        said.setdefault(", ".join(processes) or DRIVER, []).append(text)
    return {process: "\n".join(lines) + "\n" for process, lines in said.items()}


def apply(rule: Rule, said: list[tuple[str, str]], settings: dict[str, str]) -> Failure | None:
    for process, text in said:
        for lines, groups in sights(rule, text):
            reason = rule.reason.format(**settings, **groups, all=lines[-1])
            # The driver's exception names the process itself.
            where = f" ({process})" if process and rule.anywhere else ""
            prefix = f"({process}) " if process else ""
            shown = shorten([prefix + line for line in lines if not MARKS.match(line)])
            return Failure(rule.kind, one_line(reason + where), shown, rule.todo or WHAT_TO_DO[rule.kind])
    return None


def sights(rule: Rule, text: str) -> Iterator[tuple[list[str], dict[str, str]]]:
    """The lines where a rule applies, with what they tell."""
    if not rule.below:
        for match in re.finditer(rule.pattern, text, re.MULTILINE):
            yield match[0].split("\n"), named(match)
        return
    for traceback in TRACEBACK.finditer(text):
        exception = re.match(rule.pattern, traceback["error"])
        if exception and re.search(rule.below, traceback["stack"]):
            file, line = FRAME.findall(traceback["stack"])[-1]
            yield traceback[0].split("\n"), {**named(exception), "file": file, "line": line}


def named(match: re.Match[str]) -> dict[str, str]:
    return {name: value or "" for name, value in match.groupdict().items()}


def ending(log: str) -> tuple[str, ...]:
    lines = (line.rstrip().rpartition("\r")[2] for line in ANSI.sub("", log[-64 * 1024 :]).split("\n"))
    return shorten([line for line in lines if not MARKS.match(line)])


def shorten(lines: list[str]) -> tuple[str, ...]:
    return tuple(line[:MAX_LENGTH] for line in lines[-MAX_LINES:])


def one_line(text: str) -> str:
    return " ".join(text.split())[:MAX_LENGTH]


def signal_name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
