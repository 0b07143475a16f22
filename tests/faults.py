"""Faults of a cluster, the outcome of a job under each, and the page that shows them."""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from statistics import median
from typing import Any

from archive_files import lines_of, metrics_of
from system import (
    HEAD,
    NODES,
    REPO,
    SHARED_ROOT,
    Job,
    Submit,
    events,
    forget_losses,
    in_ray,
    on_node,
    playbook,
    processes_of,
    until,
)

from argus.archive import checkpoints

PAGE = REPO / "docs" / "faults.md"
# A line for each fault that was made; the page is written from all of them.
RECORD = REPO / "tests" / "chaos" / "runs.jsonl"
# A file system that shows a directory in another place, as a process that can be stopped.
FUSE = "bindfs"
# That directory, on a disk of its own.
BEHIND = SHARED_ROOT.with_name("behind")
# The state in which a job may end. A second attempt is one only if its kind says whose fault the first one's end was.
GOES_ON, RETRIED, ENDS = "goes on", "retried", "ends"


def docker(*arguments: str, check: bool = True) -> str:
    return subprocess.run(["docker", *arguments], check=check, capture_output=True, text=True).stdout


def pid_of(node: str) -> str:
    return docker("inspect", "--format", "{{.State.Pid}}", node).strip()


def address_of(node: str) -> str:
    return docker("inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", node).strip()


@dataclass
class Run:
    """One fault under a job. Times are in seconds after `began`."""

    fault: str
    moment: str
    began: float = 0.0
    outage: float = 0.0
    noticed: float | None = None
    went_on: float | None = None
    attempts: tuple[str, ...] = ()
    lost_steps: int = 0


@dataclass
class Fault:
    """A fault, and what a job may do under it.

    outages: between which seconds it lasts. begins: what the job has to have before; within: how many seconds later it
    is made at most.
    """

    name: str
    make: Callable[[Job, float], None]
    outcome: str
    outages: tuple[float, float] = (0.0, 0.0)
    # Two workers with a rank each.
    nnodes: int = 1
    kinds: tuple[str, ...] = ()
    begins: Callable[[Job], object] = lambda job: job.archive.read_status().state
    within: float = 40.0
    # Under a job with vLLM.
    engine: bool = False


RUNS: list[Run] = []


# --- Making them ------------------------------------------------------------------------------------------------------


def kill(node: str, *pattern: str, signal: str = "KILL") -> None:
    """Send a signal to processes of a node. A node that ends with them may take the answer along."""
    done = subprocess.run(["docker", "exec", node, "pkill", f"-{signal}", *pattern], check=False)
    assert done.returncode != 1, f"{node} has no process {pattern}"


def driver_of(job: Job) -> str:
    return str(job.archive.read_status().driver["host"])


def has_driver(job: Job) -> object:
    return job.archive.read_status().driver


def has_two_checkpoints(job: Job) -> object:
    return len(list(checkpoints.saved_checkpoints(job.archive.path / "checkpoints", job.archive.plan().workload))) > 1


def has_step(job: Job) -> object:
    return job.archive.heartbeat().step


def kill_head(_job: Job, outage: float) -> None:
    docker("kill", HEAD)
    time.sleep(outage)
    docker("start", HEAD)


def make_head_anew(_job: Job, outage: float) -> None:
    docker("rm", "--force", HEAD)
    time.sleep(outage)
    playbook("cluster_up")


def kill_steward(_job: Job, _outage: float) -> None:
    kill(HEAD, "-f", "current steward")


def kill_node_of_driver(job: Job, outage: float) -> None:
    node = driver_of(job)
    docker("kill", node)
    time.sleep(outage)
    docker("start", node)


def kill_other_node(job: Job, outage: float) -> None:
    node = next(node for node in NODES[1:] if node != driver_of(job))
    docker("kill", node)
    time.sleep(outage)
    docker("start", node)


def kill_trainer(job: Job, _outage: float) -> None:
    kill(driver_of(job), "-f", f"{job.archive.plan().module} .*{job.submission_id}")


def kill_rank(_job: Job, _outage: float) -> None:
    kill_where("^ray::(TrainingWorker|WorkerDict)")


def nodes_with(pattern: str) -> list[str]:
    """The workers that have such a process."""
    return [node for node in NODES[1:] if re.search(pattern, on_node(node, "ps", "-eo", "args"), re.MULTILINE)]


def kill_where(pattern: str, signal: str = "KILL") -> None:
    """Send a signal to processes on one of the workers that have such."""
    kill(nodes_with(pattern)[0], "-f", pattern, signal=signal)


SERVER, ENGINE, WORKER_OF_ENGINE = "^ray::vLLMHttpServer", "^VLLM::EngineCore", "^VLLM::Worker"


def has_engine(_job: Job) -> object:
    return nodes_with(ENGINE)


def kill_server(_job: Job, _outage: float) -> None:
    """Its engine lives on without a parent."""
    kill_where(SERVER)


def kill_engine(_job: Job, _outage: float) -> None:
    kill_where(ENGINE)


def kill_worker_of_engine(_job: Job, _outage: float) -> None:
    kill_where(WORKER_OF_ENGINE)


def stop(pattern: str) -> Callable[[Job, float], None]:
    return lambda _job, _outage: kill_where(pattern, "STOP")


def kill_worker_at_update(_job: Job, _outage: float) -> None:
    """While the trainer sends weights, and waits for each bucket's answer: verl has them in a file then."""
    node = nodes_with(WORKER_OF_ENGINE)[0]
    kill_then = f"until ls /dev/shm/verl_weights_* 2>/dev/null; do :; done; pkill -KILL -f {WORKER_OF_ENGINE}"
    on_node(node, "timeout", "60", "sh", "-c", kill_then)


def cut_checkpoint(job: Job, outage: float) -> None:
    """A file of the last checkpoint loses its end, before the job has to resume from one."""
    last = checkpoints.last_complete(job.archive.path / "checkpoints", job.archive.plan().workload)
    assert last, "the job has no checkpoint"
    shard = next(last.path.rglob("model_world_size_*"))
    os.truncate(shard, shard.stat().st_size // 2)
    kill_trainer(job, outage)


def cut_network(job: Job, outage: float) -> None:
    """Between the driver's node and the head: packets are dropped, both ways."""
    node = driver_of(job)
    inside, address = ("nsenter", "--target", pid_of(node), "--net", "iptables"), address_of(HEAD)
    for rule in (("INPUT", "--source"), ("OUTPUT", "--destination")):
        subprocess.run([*inside, "--append", *rule, address, "--jump", "DROP"], check=True)
    time.sleep(outage)
    # The node may have been started again, with a network of its own.
    subprocess.run([*inside, "--flush"], check=False)


def fill_shared_root(_job: Job, outage: float) -> None:
    filler = BEHIND / "filler"
    # The file system needs some of what it counts as free for the file itself.
    subprocess.run(["fallocate", "--length", str(shutil.disk_usage(BEHIND).free * 49 // 50), str(filler)], check=True)
    subprocess.run(["sh", "-c", f"cat /dev/zero >> {filler}"], check=False, stderr=subprocess.DEVNULL)
    time.sleep(outage)
    filler.unlink()


NODE_LOST, KILLED = ("node_lost",), ("killed",)
# The trainer waits for it, or fails when it ends.
OF_ENGINE: dict[str, Any] = {"kinds": ("engine_lost", "killed"), "begins": has_step, "engine": True}
# Its processes live on, and tell nothing: only the job's stall_timeout ends it.
STOPPED_ENGINE = OF_ENGINE | {"kinds": ("stalled",), "begins": has_two_checkpoints, "within": 5}
FULL = "the shared root is full for 60 s"
CUT = "the network to the head is cut for 120 s"
CHECKPOINT = "the last checkpoint is cut, and the trainer killed"
FAULTS = (
    Fault("the head is killed, and started again", kill_head, GOES_ON, (2, 180)),
    Fault("the head is removed, and made anew by cluster_up", make_head_anew, GOES_ON, (2, 60)),
    Fault("the steward is killed", kill_steward, GOES_ON),
    Fault("the driver's worker is killed", kill_node_of_driver, RETRIED, (5, 60), 1, NODE_LOST, has_driver),
    Fault("another worker of the job is killed", kill_other_node, RETRIED, (5, 60), 2, NODE_LOST, has_step),
    Fault("a rank is killed", kill_rank, RETRIED, kinds=KILLED, begins=has_step),
    Fault("an inference server is killed", kill_server, RETRIED, **OF_ENGINE),
    Fault("an engine is killed", kill_engine, RETRIED, **OF_ENGINE),
    Fault("a worker of an engine is killed", kill_worker_of_engine, RETRIED, **OF_ENGINE),
    Fault("a worker of an engine is killed at a weight update", kill_worker_at_update, RETRIED, **OF_ENGINE),
    Fault("an engine is killed as it starts", kill_engine, RETRIED, **OF_ENGINE | {"begins": has_engine, "within": 5}),
    Fault("an inference server hangs", stop(SERVER), ENDS, **STOPPED_ENGINE),
    Fault("an engine hangs", stop(ENGINE), ENDS, **STOPPED_ENGINE),
    Fault("a worker of an engine hangs", stop(WORKER_OF_ENGINE), ENDS, **STOPPED_ENGINE),
    Fault(CHECKPOINT, cut_checkpoint, RETRIED, kinds=KILLED, begins=has_two_checkpoints, within=5),
    Fault(FULL, fill_shared_root, ENDS, (60, 60), kinds=("disk_full",), begins=has_two_checkpoints, within=2),
    Fault(CUT, cut_network, RETRIED, (120, 120), 1, NODE_LOST + KILLED, has_driver),
)
# These need no file system of the tests' own.
EVERYWHERE = tuple(fault for fault in FAULTS if fault.make is not fill_shared_root)
# A job of weeks meets these more than once.
OFTEN = tuple(fault for fault in FAULTS if fault.make in (kill_head, kill_steward, kill_node_of_driver))


# --- Jobs under them --------------------------------------------------------------------------------------------------

SLOW_ROWS = REPO / "tests" / "training" / "slow_rows.py"
SETTINGS = {
    **{"trainer.total_epochs": 3, "trainer.save_freq": 4, "trainer.test_freq": -1},
    **{"data.custom_cls.path": f"/private/user/code/{SLOW_ROWS.name}", "data.custom_cls.name": "SlowRows"},
}


def job_for(submit: Submit, fault: Fault) -> Job:
    limits = {"stall_timeout": "90s", "on_stall": "stop"} if fault.outcome == ENDS else {}
    return grpo(submit, "vllm", **limits) if fault.engine else sft(submit, fault.nnodes)


def grpo(submit: Submit, engine: str = "hf_cpu", **limits: str) -> Job:
    forget_losses()
    settings = {"trainer.total_training_steps": 40, "trainer.save_freq": 4, "actor_rollout_ref.rollout.name": engine}
    size = {"nnodes": 1, "gpus_per_node": 1}
    return submit("grpo", resources=size, retries=2, trainer_overrides=settings, **limits)


def sft(submit: Submit, nnodes: int = 1, retries: int = 2, noise: int = 0, **settings: object) -> Job:
    """A job whose steps take two seconds with one rank, whatever else runs. noise: lines in its log for each row."""
    forget_losses()
    shutil.copy(SLOW_ROWS, SHARED_ROOT / "user" / "code")
    return submit(
        "sft",
        resources={"nnodes": nnodes, "gpus_per_node": 1},
        retries=retries,
        trainer_overrides={**SETTINGS, **settings},
        env_vars={"SLOW_ROWS_SECONDS": "0.1", "SLOW_ROWS_NOISE": str(noise)},
    )


def survive(fault: Fault, job: Job, chance: random.Random) -> None:
    """Make a fault at a random moment of a job's life, and check what became of job, archive and cluster."""
    run = run_under(fault, job, chance)
    problems = problems_after(fault, job, run)
    assert not problems, f"{run}: {'; '.join(problems)}"


# --- Looking at what became of a job ----------------------------------------------------------------------------------


def moment_of(job: Job) -> str:
    status = job.archive.read_status()
    step = job.archive.heartbeat().step
    return f"step {step}" if step else "starts" if status.driver else "waits for its driver"


def run_under(fault: Fault, job: Job, chance: random.Random) -> Run:
    """Make a fault at a random moment of a job's life, and wait for the job's end."""
    until(lambda: fault.begins(job), "the job has what the fault needs")
    # Its steps take less than half a minute on two workers.
    time.sleep(chance.uniform(0, 12 if fault.begins is has_step else fault.within))
    run = Run(fault.name, moment_of(job), outage=round(chance.uniform(*fault.outages), 1))
    watch = Watch(job, job.archive.read_status().attempt + 1 if fault.outcome == RETRIED else None)
    watch.start()
    fault.make(job, run.outage)
    until(lambda: "closed_at" in job.archive.status_json(), f"{fault.name}: the job ends", 900)
    status = job.archive.read_status()
    run.attempts = tuple(attempt.kind or str(attempt.state) for attempt in status.attempts)
    run.noticed = noticed_after(fault, job, watch.began)
    run.went_on = watch.after
    run.lost_steps = sum(lost_steps(job))
    RUNS.append(run)
    return run


def run_between_steps(fault: Fault, job: Job, chance: random.Random) -> Run:
    """Make a fault at a random moment of a job that goes on, and wait until it has done a further step."""
    until(lambda: has_driver(job) and job.archive.heartbeat().step and all_alive(), "the job trains", 600)
    time.sleep(chance.uniform(0, 10))
    run = Run(fault.name, moment_of(job), outage=round(chance.triangular(*fault.outages, fault.outages[0]), 1))
    watch = Watch(job)
    if fault.outcome == GOES_ON:
        watch.start()
    fault.make(job, run.outage)
    if fault.outcome == RETRIED:
        # A step of the attempt that has ended is none.
        until(lambda: noticed_after(fault, job, watch.began), f"{fault.name}: it is noticed", 300)
        watch.start()
    watch.join()
    run.began, run.went_on = watch.began, watch.after
    RUNS.append(run)
    return run


def all_alive() -> bool:
    """Whether the head answers, and lists all nodes as alive."""
    command = ["docker", "exec", HEAD, "argus", "nodes", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    nodes = json.loads(done.stdout)["result"]["nodes"] if done.returncode == 0 else []
    return {node["node_name"] for node in nodes if node["state"] == "ALIVE"} == set(NODES)


def at(line: dict[str, object]) -> float:
    return datetime.fromisoformat(str(line["time"])).timestamp()


def noticed_after(fault: Fault, job: Job, began: float, before: float = math.inf) -> float | None:
    """The seconds until the steward recorded a fault."""
    kinds = {RETRIED: ("ENGINE_LOST", "RETRYING"), ENDS: ("STALLED",)}.get(fault.outcome, ("HEAD_RETURNED",))
    moments = (at(line) for line in lines_of(job.archive, "events.jsonl") if line["event"] in kinds)
    return next((round(moment - began, 1) for moment in moments if began < moment < before), None)


class Watch(threading.Thread):
    """Waits for a step that the job had not done, or for the first one of an attempt."""

    def __init__(self, job: Job, attempt: int | None = None) -> None:
        super().__init__(daemon=True)
        self.job, self.done, self.began = job, job.archive.heartbeat().step or 0, time.time()
        self.attempt = attempt
        self.after: float | None = None

    def run(self) -> None:
        while time.time() < self.began + 900 and self.after is None:
            if self.has_step():
                self.after = round(time.time() - self.began, 1)
            time.sleep(0.5)

    def has_step(self) -> object:
        if self.attempt:
            return lines_of(self.job.archive, f"logs/metrics-{self.attempt}.jsonl")
        return (self.job.archive.heartbeat().step or 0) > self.done


def lost_steps(job: Job) -> list[int]:
    """For each attempt that another one followed, the steps that it had done and the next one did again."""
    lost = []
    for attempt, following in itertools.pairwise(job.archive.read_status().attempts):
        steps = [line["step"] for line in lines_of(job.archive, f"logs/metrics-{attempt.attempt}.jsonl")]
        lost.append(max(0, max(steps, default=0) - (following.resumed_from or 0)))
    return lost


def problems_after(fault: Fault, job: Job, run: Run) -> list[str]:
    """What is wrong with a job, its archive and the cluster after a fault."""
    status, problems = job.archive.read_status(), []
    if status.state != ("FAILED" if fault.outcome == ENDS else "SUCCEEDED"):
        problems.append(f"the job ended {status.state}: {status.reason}")
    if events(job)[-1] != "CLOSED":
        problems.append(f"the last event is {events(job)[-1]}")
    if fault.outcome == RETRIED and len(run.attempts) < 2:
        problems.append("it had no effect")
    allowed = {"SUCCEEDED", "head_lost", *fault.kinds} if run.moment.startswith(("starts", "waits")) else None
    allowed = allowed or {"SUCCEEDED", *fault.kinds}
    problems += [f"an attempt ended as {kind}" for kind in run.attempts if kind not in allowed]
    steps = [line["step"] for line in metrics_of(job.archive)]
    # verl saves a step, and updates its engines, before it writes the step's metrics.
    missing = {*range(1, steps[-1] + 1)} - {*steps} - {attempt.resumed_from for attempt in status.attempts}
    if missing or steps != sorted({*steps}):
        problems.append(f"the steps are {steps}")
    if fault.outcome == GOES_ON and run.lost_steps:
        problems.append(f"{run.lost_steps} steps were lost")
    directory, workload = job.archive.path / "checkpoints", job.archive.plan().workload
    last = checkpoints.inspect(directory / f"global_step_{steps[-1]}", workload)
    if last.problem and (status.state == "SUCCEEDED" or not checkpoints.last_complete(directory, workload)):
        problems.append(last.problem)
    return [*problems, *left_by(job)]


def left_by(job: Job) -> list[str]:
    """What is wrong with a cluster after a job."""
    problems = []
    until(lambda: "3 of 3 nodes as expected" in playbook("cluster_status", check=False).stdout, "the nodes are back")
    again = playbook("cluster_up", check=False).stdout
    if "changed=0" not in again:
        problems.append(f"cluster_up changed something: {again[-400:]}")
    for node in NODES:
        if processes_of(job, node):
            problems.append(f"{node} still has a process of the job")
    groups = in_ray("from ray.util.state import list_placement_groups as l; print([g.state for g in l(limit=1000)])")
    if "CREATED" in groups or "PENDING" in groups:
        problems.append(f"placement groups are left: {groups}")
    if list((SHARED_ROOT / "jobs" / ".secrets").glob(f"{job.submission_id}*")):
        problems.append("its secrets are left")
    return problems


# --- The page ---------------------------------------------------------------------------------------------------------

HEADER = """# Faults

What becomes of a job when a part of its cluster fails. `make chaos` makes each fault in a real cluster of three
containers, at a random moment of the life of a real SFT or GRPO job on two CPU cores, and some of them again and again
under one long job. Engines are those of vLLM, [on CPUs](cpu_backend.md#with-vllm). Then it checks job, archive and
cluster, and writes this table. Times are in seconds after the fault: the median, the longest. A fault of the head is
noticed when it is back. What hangs is a stopped process; these jobs have `stall_timeout: 90s` and `on_stall: stop`.

| Fault | Runs | The job | Noticed after | The next step after | Ends of attempts | Most steps lost |
|---|---|---|---|---|---|---|
"""


def times(values: Iterable[float | None]) -> str:
    numbers = [value for value in values if value is not None]
    return f"{median(numbers):.0f}, {max(numbers):.0f}" if numbers else "-"


def record() -> None:
    """Add what this process has seen to the record, and write the page from all of it."""
    with RECORD.open("a", encoding="utf-8") as lines:
        lines.writelines(json.dumps(asdict(run)) + "\n" for run in RUNS)
    seen = [Run(**json.loads(line)) for line in RECORD.read_text(encoding="utf-8").splitlines()]
    rows = []
    for fault in FAULTS:
        if runs := [run for run in seen if run.fault == fault.name]:
            noticed, went_on = times(run.noticed for run in runs), times(run.went_on for run in runs)
            kinds = ", ".join(sorted({f"`{kind}`" for run in runs for kind in run.attempts}))
            cells = (fault.name, len(runs), fault.outcome, noticed, went_on, kinds, max(run.lost_steps for run in runs))
            rows.append(f"| {' | '.join(map(str, cells))} |\n")
    PAGE.write_text(HEADER + "".join(rows), encoding="utf-8")
