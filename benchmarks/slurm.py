#!/usr/bin/env python3
"""Measure `slurm_up`, compared with a batch script that starts Ray by hand, on the same Slurm.

The script has the usual form: `srun … ray start --head`, a pause of 10 seconds, and for each further host another
srun and a pause of 5. Both are measured from the moment when Slurm grants the hosts until 3 nodes are ALIVE.

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
RAW_SCRIPT = f"""#!/bin/bash
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


def run_molecule(action: str) -> None:
    subprocess.run(["molecule", action, "--scenario-name", "slurm"], cwd=REPO, check=True, capture_output=True)


def run_on_site(*command: str, stdin: str = "") -> str:
    """Run a command as the site's user on its login host, and return its output; exit if it fails."""
    variables = [f"ARGUS={REPO}", f"ANSIBLE_CONFIG={REPO}/ansible.cfg", "HOME=/home/ml", "PYTHONDONTWRITEBYTECODE=1"]
    settings = [word for variable in variables for word in ("--env", variable)]
    argv = ["docker", "exec", "--interactive", "--user", "ml", "--workdir", "/private/ml", *settings, "slurm-login"]
    done = subprocess.run([*argv, *command], input=stdin, text=True, check=False, capture_output=True)
    if done.returncode:
        sys.exit(f"{command[0]} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def run_playbook(*arguments: str) -> float:
    began = time.monotonic()
    run_on_site("ansible-playbook", "--inventory", str(SCENARIO / "inventory" / "slurm.yml"), *arguments)
    return time.monotonic() - began


def start_time(name: str) -> float:
    """The time when Slurm granted the hosts of the job with this name, in seconds since the epoch."""
    listed = run_on_site("squeue", "--me", "--noheader", "--format=%i", f"--name={name}").split()
    # squeue lists the components of a heterogeneous job as "12+0" and "12+1".
    (job,) = {one.partition("+")[0] for one in listed}
    record = run_on_site("env", "SLURM_TIME_FORMAT=%s", "scontrol", "show", "job", job)
    return min(float(start) for start in re.findall(r"StartTime=(\d+)", record))


def wait_until_idle() -> None:
    list_states = ("sinfo", "--noheader", "--format=%T")
    while run_on_site("squeue", "--noheader") or set(run_on_site(*list_states).split()) != {"idle"}:
        time.sleep(0.2)


def measure_script() -> float:
    """Submit the batch script, cancel its job, and return the seconds until the nodes were ALIVE."""
    alive = REPO / ".cache" / "test" / "slurm" / "private" / "ml" / "alive"
    alive.unlink(missing_ok=True)
    run_on_site("sbatch", "--time=10", stdin=RAW_SCRIPT)
    while not alive.exists() or not alive.read_text():
        time.sleep(0.2)
    seconds = float(alive.read_text()) - start_time("raw")
    run_on_site("scancel", "--me")
    wait_until_idle()
    return seconds


def print_row(name: str, values: Sequence[float], more: str = "") -> None:
    listed = ", ".join(f"{value:.1f}" for value in values)
    print(f"{name:40} {statistics.median(values):6.1f} s   ({listed}) {more}")


def main() -> None:
    playbooks = REPO / "playbooks"
    by_hand, ours, again = [], [], []
    run_molecule("create")
    try:
        for _ in range(ROUNDS):
            by_hand.append(measure_script())
            run_playbook(str(playbooks / "slurm_up.yml"))
            ours.append(time.time() - start_time("argus-verl"))
            again.append(run_playbook(str(playbooks / "slurm_up.yml")))
            run_playbook(str(playbooks / "slurm_down.yml"))
            wait_until_idle()
    finally:
        run_molecule("destroy")
    ratio = statistics.median(ours) / statistics.median(by_hand)
    print_row(f"batch script: hosts to {NODES} ALIVE", by_hand)
    print_row(f"slurm_up: hosts to {NODES} ALIVE", ours, f"{ratio:.2f} times the script")
    print_row("slurm_up on the healthy cluster", again)


if __name__ == "__main__":
    os.environ["PATH"] = f"{REPO / '.venv' / 'bin'}:{os.environ['PATH']}"
    os.environ["ANSIBLE_CONFIG"] = str(REPO / "ansible.cfg")
    main()
