#!/usr/bin/env python3
"""Measure the overhead of the playbooks over raw commands, in one run on one machine.

cluster_up      compared with three concurrent `docker run … ray start --block`, until 3 nodes are ALIVE
cluster_up      again, on the healthy cluster
submit --check  the gate alone, including the start of Ansible
submit          compared with a call of the SDK in a new Python process on the head, and with this machine over SSH

Run it after `make setup-dev`, on an otherwise idle machine with sshd: `.venv/bin/python benchmarks/speed.py`.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO / "tests"))

from loopback import localhost_over_ssh
from scale import COUNTING, host_task_count
from system import HEAD, INVENTORY, SHARED_ROOT, module, playbook

IMAGE = "argus-verl-cpu:0.1.0"
PORT = 8285
ROUNDS = 3
SUBMIT = """
from ray.job_submission import JobSubmissionClient
JobSubmissionClient("http://127.0.0.1:8265").submit_job(
    entrypoint="true", entrypoint_num_cpus=1, entrypoint_resources={"worker_node": 1}
)
"""


def measure_seconds(call: Callable[[], object]) -> float:
    start = time.monotonic()
    call()
    return time.monotonic() - start


def docker(*arguments: str) -> None:
    subprocess.run(["docker", *arguments], check=True, capture_output=True)


def alive_count(token: str, head: str = f"127.0.0.1:{PORT}") -> int:
    """The number of nodes that Ray's dashboard lists as ALIVE; 0 while the dashboard does not answer."""
    request = urllib.request.Request(f"http://{head}/api/v0/nodes")
    request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=2) as answer:  # noqa: S310 - always http to nodes of this machine
            nodes = json.load(answer)["data"]["result"]["result"]
    except (OSError, KeyError, TypeError, ValueError):
        return 0
    return sum(node["state"] == "ALIVE" for node in nodes)


def raw_up() -> None:
    """Start the same three nodes by hand, with the same token protection, all at once."""
    token = secrets.token_hex(32)
    with tempfile.NamedTemporaryFile("w", dir=SHARED_ROOT) as file:
        file.write(token)
        file.flush()
        os.chown(file.name, 61000, 61000)
        run = ["docker", "run", "--detach", "--init", "--network", "raw-ray", "--shm-size", "2g"]
        run += ["--env", "RAY_AUTH_MODE=token", "--env", "RAY_AUTH_TOKEN_PATH=/run/token"]
        run += ["--volume", f"{file.name}:/run/token:ro", "--volume", f"{SHARED_ROOT}:/private"]
        start = ["ray", "start", "--block", "--disable-usage-stats", "--object-store-memory=1073741824"]
        head = ["--name", "raw-head", "--publish", f"127.0.0.1:{PORT}:8265", IMAGE, *start, "--head"]
        commands = [[*run, *head, "--num-cpus=0", "--num-gpus=0", "--dashboard-host=0.0.0.0"]]
        for index in (0, 1):
            worker = ["--name", f"raw-worker-{index}", IMAGE, *start, "--address=raw-head:6379", "--num-gpus=4"]
            commands.append([*run, *worker, "--num-cpus=48", '--resources={"worker_node": 100}'])
        docker("network", "create", "raw-ray")
        started = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]
        for process in started:
            process.wait()
        while alive_count(token) < 3:
            time.sleep(0.1)


def raw_down() -> None:
    for command in (["rm", "-f", "raw-head", "raw-worker-0", "raw-worker-1"], ["network", "rm", "raw-ray"]):
        subprocess.run(["docker", *command], check=False, capture_output=True)


def submit(*overlays: Path) -> float:
    """Submit a job, and return how long that took. Stops the job afterwards."""
    start = time.monotonic()
    output = playbook("submit", inventories=(INVENTORY, *overlays), jobspec="sft.yaml").stdout
    seconds = time.monotonic() - start
    # The next job must not compete with this one for the CPUs.
    (job,) = re.findall(r"^Job (\S+):", output, re.MULTILINE)
    module("ray_job", state="stopped", submission_id=job)
    return seconds


def remove_cluster() -> None:
    playbook("cluster_down", allow_disruption=True)


def print_row(name: str, values: list[float], more: str = "") -> None:
    times = ", ".join(f"{value:.1f}" for value in values)
    print(f"{name:36} {statistics.median(values):6.1f} s   ({times}) {more}", flush=True)


def main() -> None:
    SHARED_ROOT.mkdir(parents=True, exist_ok=True)
    raw_down()
    remove_cluster()
    raw, ours, again, tasks = [], [], [], 0
    for _ in range(ROUNDS):
        raw.append(measure_seconds(raw_up))
        raw_down()
        ours.append(measure_seconds(lambda: playbook("cluster_up")))
        start = time.monotonic()
        tasks = host_task_count(playbook("cluster_up", environment=COUNTING).stdout)
        again.append(time.monotonic() - start)
        remove_cluster()
    print_row("raw: three docker run, 3 ALIVE", raw)
    ratio = statistics.median(ours) / statistics.median(raw)
    print_row("cluster_up from nothing", ours, f"{ratio:.2f} times the raw commands")
    print_row("cluster_up on the healthy cluster", again, f"{tasks} host-tasks")

    playbook("cluster_up", "stage")
    sdk, gate, local, remote = [], [], [], []
    for _ in range(ROUNDS):
        sdk.append(measure_seconds(lambda: docker("exec", HEAD, "python3", "-c", SUBMIT)))
    for name in ("sft", "grpo", "ppo"):
        gate.append(measure_seconds(partial(playbook, "submit", arguments=["--check"], jobspec=f"{name}.yaml")))
    print_row("submit_job of the SDK", sdk)
    print_row("submit --check of SFT, GRPO, PPO", gate)
    with localhost_over_ssh() as overlay:
        for _ in range(ROUNDS):
            local.append(submit())
            remote.append(submit(overlay))
    remove_cluster()

    print_row("submit", local, f"{statistics.median(local) - statistics.median(sdk):.1f} s over it")
    ssh_ratio = statistics.median(remote) / statistics.median(local)
    print_row("submit over SSH", remote, f"{ssh_ratio:.2f} times the local one")


if __name__ == "__main__":
    main()
