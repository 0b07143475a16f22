#!/usr/bin/env python3
"""Measure `slurm_up`, compared with a batch script that starts Ray by hand, on the same Slurm.

The script is of the usual form: `srun … ray start --head`, a pause of 10 seconds, and for each further host another
srun and a pause of 5. Both are measured from the moment at which Slurm grants the hosts until 3 nodes are ALIVE.

The site is that of the scenario `slurm`, containers on this machine. Run it after `make setup-dev`, on a machine that
is idle otherwise: `.venv/bin/python benchmarks/slurm.py`.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
SCENARIO = REPO / "molecule" / "slurm"
ROUNDS = 3
NODES = 3
RAY = "/opt/verl/bin/ray"
RAW = f"""#!/bin/bash
#SBATCH --job-name=raw --partition=cpu --nodes=1 --ntasks=1 --cpus-per-task=2
#SBATCH hetjob
#SBATCH --partition=gpu --nodes=2 --ntasks-per-node=1 --exclusive --gpus-per-node=2
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST_HET_GROUP_0")
workers=($(scontrol show hostnames "$SLURM_JOB_NODELIST_HET_GROUP_1"))
ip=$(srun --het-group=0 --nodes=1 --ntasks=1 -w "$head" hostname --ip-address)
srun --overlap --het-group=0 --nodes=1 --ntasks=1 -w "$head" \
  {RAY} start --head --node-ip-address="$ip" --port=6379 --num-cpus=0 --num-gpus=0 --block &
sleep 10
for worker in "${{workers[@]}}"; do
  srun --overlap --het-group=1 --nodes=1 --ntasks=1 -w "$worker" \
    {RAY} start --address="$ip:6379" --num-cpus=24 --num-gpus=2 --block &
  sleep 5
done
until [ "$({RAY} status --address="$ip:6379" 2>/dev/null | grep -c '1 node_')" = {NODES} ]; do sleep 0.2; done
date +%s.%N > /private/ml/alive
sleep infinity
"""


def molecule(action: str) -> None:
    subprocess.run(["molecule", action, "--scenario-name", "slurm"], cwd=REPO, check=True, capture_output=True)


def on_site(*command: str, stdin: str = "") -> str:
    """Run a command of the site's user on its login host."""
    variables = [f"ARGUS={REPO}", f"ANSIBLE_CONFIG={REPO}/ansible.cfg", "HOME=/home/ml", "PYTHONDONTWRITEBYTECODE=1"]
    settings = [word for variable in variables for word in ("--env", variable)]
    argv = ["docker", "exec", "--interactive", "--user", "ml", "--workdir", "/private/ml", *settings, "slurm-login"]
    done = subprocess.run([*argv, *command], input=stdin, text=True, check=False, capture_output=True)
    if done.returncode:
        sys.exit(f"{command[0]} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def playbook(*arguments: str) -> float:
    began = time.monotonic()
    on_site("ansible-playbook", "--inventory", str(SCENARIO / "inventory" / "slurm.yml"), *arguments)
    return time.monotonic() - began


def granted(name: str) -> float:
    """The time at which the job with this name started, in seconds since the epoch."""
    listed = on_site("squeue", "--me", "--noheader", "--format=%i", f"--name={name}").split()
    # squeue lists the components of a heterogeneous job as "12+0" and "12+1".
    (job,) = {one.partition("+")[0] for one in listed}
    record = on_site("env", "SLURM_TIME_FORMAT=%s", "scontrol", "show", "job", job)
    return min(float(start) for start in re.findall(r"StartTime=(\d+)", record))


def without_jobs() -> None:
    while on_site("squeue", "--noheader") or set(on_site("sinfo", "--noheader", "--format=%T").split()) != {"idle"}:
        time.sleep(0.2)


def raw() -> float:
    alive = REPO / ".cache" / "test" / "slurm" / "private" / "ml" / "alive"
    alive.unlink(missing_ok=True)
    on_site("sbatch", "--time=10", stdin=RAW)
    while not alive.exists() or not alive.read_text():
        time.sleep(0.2)
    seconds = float(alive.read_text()) - granted("raw")
    on_site("scancel", "--me")
    without_jobs()
    return seconds


def show(name: str, values: Sequence[float], more: str = "") -> None:
    listed = ", ".join(f"{value:.1f}" for value in values)
    print(f"{name:40} {statistics.median(values):6.1f} s   ({listed}) {more}")


def main() -> None:
    playbooks = REPO / "playbooks"
    by_hand, ours, again = [], [], []
    molecule("create")
    try:
        for _ in range(ROUNDS):
            by_hand.append(raw())
            playbook(str(playbooks / "slurm_up.yml"))
            ours.append(time.time() - granted("argus-verl"))
            again.append(playbook(str(playbooks / "slurm_up.yml")))
            playbook(str(playbooks / "slurm_down.yml"))
            without_jobs()
    finally:
        molecule("destroy")
    ratio = statistics.median(ours) / statistics.median(by_hand)
    show(f"batch script: hosts to {NODES} ALIVE", by_hand)
    show(f"slurm_up: hosts to {NODES} ALIVE", ours, f"{ratio:.2f} times the script")
    show("slurm_up on the healthy cluster", again)


if __name__ == "__main__":
    os.environ["PATH"] = f"{REPO / '.venv' / 'bin'}:{os.environ['PATH']}"
    os.environ["ANSIBLE_CONFIG"] = str(REPO / "ansible.cfg")
    main()
