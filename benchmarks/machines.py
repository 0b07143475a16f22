#!/usr/bin/env python3
"""Measure `cluster_up` over three machines with SSH, compared with three `ssh MACHINE docker run` at once.

The machines are containers on this machine, with sshd and an engine each. Run it after `make setup-dev`, on a machine
that is idle otherwise: `.venv/bin/python benchmarks/machines.py`.
"""

from __future__ import annotations

import json
import secrets
import shlex
import subprocess
import sys
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO / "tests"))

from raw_way import compare
from rigs.machines import UID, Rig, machines
from scale import inventory
from speed import IMAGE, alive_count

SUBNET = "198.18.79.0/24"
RIG = Rig("speed", {"ctl-0": "198.18.79.10", "gpu-0": "198.18.79.11", "gpu-1": "198.18.79.12"})
HEAD, *WORKERS = RIG.machines


def start_on(machine: str, command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen([*RIG.ssh(machine), shlex.join(command)], text=True, stdout=subprocess.DEVNULL)


def raw_up() -> None:
    """Start the same three nodes by hand, with the same token protection, all at once."""
    token = secrets.token_hex(32)
    container = ["docker", "run", "--detach", "--init", "--name", "raw", "--network", "host", "--shm-size", "2g"]
    container += ["--user", f"{UID}:{UID}", "--volume", "/private:/private"]
    container += ["--env", "RAY_AUTH_MODE=token", "--env", f"RAY_AUTH_TOKEN={token}", IMAGE]
    start = ["ray", "start", "--block", "--disable-usage-stats", "--object-store-memory=1073741824"]
    head = ["--head", f"--node-ip-address={RIG.machines[HEAD]}", "--num-cpus=0", "--num-gpus=0"]
    started = [start_on(HEAD, [*container, *start, *head, "--dashboard-host=0.0.0.0"])]
    for worker in WORKERS:
        joins = [f"--address={RIG.machines[HEAD]}:6379", f"--node-ip-address={RIG.machines[worker]}"]
        joins += ["--num-gpus=4", "--num-cpus=48", '--resources={"worker_node": 100}']
        started.append(start_on(worker, [*container, *start, *joins]))
    for process in started:
        process.wait()
    while alive_count(token, f"{RIG.machines[HEAD]}:8265") < len(RIG.machines):
        time.sleep(0.1)


def raw_down() -> None:
    for process in [start_on(machine, ["docker", "rm", "--force", "--volumes", "raw"]) for machine in RIG.machines]:
        process.wait()


def main() -> None:
    with machines(RIG, SUBNET, engine=IMAGE, share=REPO / ".cache" / "test" / "speed"):
        (RIG.directory / "hosts.json").write_text(json.dumps(inventory(RIG)))
        compare(RIG, "three ssh docker run, 3 ALIVE", raw_up, raw_down)


if __name__ == "__main__":
    main()
