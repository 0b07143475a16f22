#!/usr/bin/env python3
"""Measure what playbooks with nothing to do cost the controller, by the number of machines.

Each machine is a container with a real sshd, where Ansible runs the collection's real modules. Engines and Ray are not
real, because this machine cannot run so many of them: `scale_machine/docker` and `scale_machine/head.py` answer that
every node runs as planned. The CPU seconds are those of the controller alone: ansible-playbook and its SSH clients.
The seconds are longer than on a controller of its own, because the machines share its cores.

    .venv/bin/python benchmarks/scale.py [HOSTS...]                # 4 16 64, at most 1,000
    .venv/bin/python benchmarks/scale.py --profile FILE HOSTS      # for pstats
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO / "tests"))

from rigs.machines import PORT, USER, Rig, machines

HERE = Path(__file__).resolve().parent / "scale_machine"
SUBNET = ip_network("198.18.80.0/22")
PLAYBOOKS = ("cluster_up", "preflight", "cluster_status")
# The SSH clients at once that connect without Ansible: as many as ansible.cfg has forks.
FORKS = 50
# The environment with which Ansible prints the number of host-tasks. The collection's summary lacks skipped tasks.
COUNTING = {"ANSIBLE_CALLBACK_PLUGINS": str(HERE.parent / "callbacks"), "ANSIBLE_CALLBACKS_ENABLED": "host_tasks"}
PROFILE = """
import cProfile, sys
from ansible.cli.playbook import main
sys.argv[0] = "ansible-playbook"
profile = cProfile.Profile()
try:
    profile.runcall(main)
finally:
    profile.dump_stats({file!r})
"""


@dataclass(frozen=True)
class Run:
    seconds: float
    cpu_seconds: float
    host_tasks: int
    # SSH connections of a machine, and sessions in them, on average.
    connections: float
    sessions: float


def inventory(rig: Rig) -> dict[str, Any]:
    """An inventory like inventories/prod, with a node on each machine."""
    nodes = {name: {"ansible_host": address} for name, address in rig.machines.items()}
    reached = {
        "ansible_user": USER,
        "ansible_port": PORT,
        "ansible_ssh_private_key_file": str(rig.key),
        "ansible_ssh_common_args": f"-o UserKnownHostsFile={rig.directory / 'known_hosts'}",
    }
    head, *workers = nodes
    ray = {
        "children": {
            "head": {"hosts": {head: nodes[head]}},
            "workers": {"hosts": {name: nodes[name] for name in workers}},
        },
        "vars": reached,
    }
    variables = {"cluster_name": "scale", "cluster_network": "host", "ray_node_accelerator": "cpu"}
    return {"all": {"vars": variables, "children": {"ray": ray}}}


def run_playbook(rig: Rig, playbook: Path, profile: str = "") -> str:
    """Run a playbook with new connections, and return its output. profile: the file for a profile of Ansible."""
    command = [sys.executable, "-c", PROFILE.format(file=profile)] if profile else ["ansible-playbook"]
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="cp") as control:
        done = subprocess.run(
            [*command, "-i", str(rig.directory / "hosts.json"), str(playbook)],
            env={
                **os.environ,
                **COUNTING,
                "ANSIBLE_CONFIG": str(REPO / "ansible.cfg"),
                "ANSIBLE_NOCOLOR": "1",
                "ANSIBLE_SSH_CONTROL_PATH_DIR": control,
            },
            text=True,
            capture_output=True,
            check=False,
        )
    if done.returncode:
        sys.exit(f"{playbook.name} failed:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def host_task_count(output: str) -> int:
    """Tasks times hosts, from the output of a run with COUNTING."""
    return sum(map(int, re.findall(r"^host-tasks=(\d+)", output, re.MULTILINE)))


def children_cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure_run(rig: Rig, name: str) -> Run:
    """Run a playbook, by its name, that has nothing to do. Exits if it changes something."""
    before, cpu, start = rig.sessions(), children_cpu_seconds(), time.monotonic()
    output = run_playbook(rig, REPO / "playbooks" / f"{name}.yml")
    seconds, cpu, after = time.monotonic() - start, children_cpu_seconds() - cpu, rig.sessions()
    connections, sessions = (
        sum(after[name][index] - before[name][index] for name in after) / len(after) for index in (0, 1)
    )
    changed = sum(map(int, re.findall(r"changed=(\d+)", output)))
    if changed:
        sys.exit(f"{name} has changed something, so this is no run with nothing to do:\n{output}")
    print(f"{name} of {len(rig.machines)} machines: {seconds:.1f} s, {cpu:.1f} CPU s", file=sys.stderr, flush=True)
    return Run(seconds, cpu, host_task_count(output), connections, sessions)


def print_connection_cost(rig: Rig) -> None:
    """Print what it costs to connect to all machines once, without Ansible."""
    cpu, start = children_cpu_seconds(), time.monotonic()
    with ThreadPoolExecutor(FORKS) as clients:
        list(clients.map(lambda machine: subprocess.run([*rig.ssh(machine), "true"], check=True), rig.machines))
    seconds, cpu = time.monotonic() - start, children_cpu_seconds() - cpu
    print(f"ssh to {len(rig.machines)} machines: {seconds:.1f} s, {cpu:.1f} CPU s", file=sys.stderr, flush=True)


def measure(hosts: int, rounds: int, profile: str) -> dict[str, list[Run]]:
    rig = Rig("scale", {f"m{index:03}": str(SUBNET[index + 10]) for index in range(hosts)})
    share = REPO / ".cache" / "test" / "scale"
    mounts = {HERE / "docker": "/usr/local/bin/docker", HERE / "head.py": "/head.py", REPO / "argus": "/program/argus"}
    fake = [argument for path, target in mounts.items() for argument in ("--volume", f"{path}:{target}:ro")]
    with machines(rig, str(SUBNET), share=share, options=fake):
        (rig.directory / "hosts.json").write_text(json.dumps(inventory(rig)))
        run_playbook(rig, HERE / "prepare.yml")
        print_connection_cost(rig)
        if profile:
            run_playbook(rig, REPO / "playbooks" / "cluster_up.yml", profile)
            return {}
        return {name: [measure_run(rig, name) for _ in range(rounds)] for name in PLAYBOOKS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hosts", nargs="*", type=int, default=[4, 16, 64])
    parser.add_argument("--rounds", type=int, default=3, help="the one with the fewest CPU seconds counts (3)")
    parser.add_argument("--profile", default="", metavar="FILE", help="write a profile of Ansible's main process")
    args = parser.parse_args()
    print(
        "hosts  playbook        seconds  CPU seconds  a host  host-tasks  a host  connections  sessions  (a host)",
        flush=True,
    )
    for hosts in args.hosts:
        for name, runs in measure(hosts, args.rounds, args.profile).items():
            least = min(runs, key=lambda run: run.cpu_seconds)
            seconds = statistics.median(run.seconds for run in runs)
            print(
                f"{hosts:5}  {name:14}  {seconds:7.1f}  {least.cpu_seconds:11.1f}"
                f"  {least.cpu_seconds / hosts:6.2f}  {least.host_tasks:10}  {least.host_tasks / hosts:6.1f}"
                f"  {least.connections:11.1f}  {least.sessions:8.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
