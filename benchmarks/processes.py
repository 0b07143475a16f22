#!/usr/bin/env python3
"""Measure `cluster_up` of nodes without a container, compared with `ssh HOST ray start` on all hosts at once.

The hosts are containers on this machine, with sshd and without an engine, as compute platforms make them. Run it after
`make setup-dev` and `make image`, on a machine that is idle otherwise:

    .venv/bin/python benchmarks/processes.py [WORKERS]             # 8
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
from rigs.machines import LABEL, Rig, docker
from speed import alive_count

IMAGE = "argus-verl-platform:test"
PYTHON = "/opt/verl/bin/python3"
USER = "ml"
GPUS, CPUS = 2, 24
RIG = "processes"
START_SECONDS = 60
# Each host makes a host key of its own.
SSH_OPTIONS = ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]


class Pods(Rig):
    """Hosts with Ray and sshd, without an engine, which accept the key of the rig."""

    def up(self) -> None:  # type: ignore[override]
        self.down()
        self._write_keys()
        docker("build", "--quiet", "--tag", IMAGE, str(REPO / "molecule" / "platform" / "files" / "image"))
        docker("network", "create", "--label", f"{LABEL}={self.name}", "--subnet", "198.18.78.0/24", self.name)
        share = self.directory / "private"
        share.mkdir()
        share.chmod(0o777)
        for name, address in self.machines.items():
            run = ["run", "--detach", "--init", "--shm-size", "2g", "--network", self.name, "--ip", address]
            run += ["--name", self.container(name), "--hostname", name, "--label", f"{LABEL}={self.name}"]
            docker(*run, "--volume", f"{self.key}.pub:/keys/key.pub:ro", "--volume", f"{share}:/private", IMAGE)
        for name in self.machines:
            deadline = time.monotonic() + START_SECONDS
            while subprocess.run([*self.ssh(name), "true"], capture_output=True, check=False).returncode:
                if time.monotonic() > deadline:
                    sys.exit(f"{self.container(name)} did not start within {START_SECONDS} s")
                time.sleep(0.2)

    def ssh(self, machine: str) -> list[str]:
        return ["ssh", "-i", str(self.key), *SSH_OPTIONS, f"{USER}@{self.machines[machine]}"]


def inventory(pods: Pods) -> dict[str, object]:
    """An inventory like inventories/platform."""
    head, *workers = ({name: {"ansible_host": address}} for name, address in pods.machines.items())
    variables = {
        "cluster_name": "processes",
        "ray_node_runtime": "process",
        "ansible_connection": "argus.verl.ssh",
        "ray_node_python": PYTHON,
        "ray_node_gpus": GPUS,
        "ray_node_cpus": CPUS,
        "preflight_disk_free_gib": 1,
        "preflight_shared_root_free_gib": 1,
        "ansible_user": USER,
        "ansible_ssh_private_key_file": str(pods.key),
        "ansible_ssh_common_args": shlex.join(SSH_OPTIONS),
    }
    groups = {
        "head": {"hosts": head},
        "workers": {"hosts": {name: host for one in workers for name, host in one.items()}},
    }
    return {"all": {"children": {"ray": {"children": groups, "vars": variables}}}}


def raw_up(pods: Pods) -> None:
    """Start the same nodes by hand, with the same token protection, all at once."""
    token = secrets.token_hex(32)
    ray = ["env", "RAY_AUTH_MODE=token", f"RAY_AUTH_TOKEN={token}", f"{Path(PYTHON).parent}/ray", "start"]
    ray += ["--disable-usage-stats", "--object-store-memory=1073741824"]
    head, *workers = pods.machines
    address = pods.machines[head]
    commands = {head: ["--head", f"--node-ip-address={address}", "--num-cpus=0", "--num-gpus=0"]}
    commands[head] += ["--dashboard-host=0.0.0.0"]
    for worker in workers:
        commands[worker] = [f"--address={address}:6379", f"--node-ip-address={pods.machines[worker]}"]
        commands[worker] += [f"--num-gpus={GPUS}", f"--num-cpus={CPUS}", '--resources={"worker_node": 100}']
    started = [
        subprocess.Popen(
            [*pods.ssh(name), shlex.join([*ray, *more])], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for name, more in commands.items()
    ]
    for process in started:
        process.wait()
    while alive_count(token, f"{address}:8265") < len(pods.machines):
        time.sleep(0.1)


def raw_down(pods: Pods) -> None:
    stop = f"{Path(PYTHON).parent}/ray stop --force; rm -rf /tmp/ray"
    started = [subprocess.Popen([*pods.ssh(name), stop], stdout=subprocess.DEVNULL) for name in pods.machines]
    for process in started:
        process.wait()


def main() -> None:
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    names = ["ctl", *(f"gpu-{index}" for index in range(workers))]
    pods = Pods(RIG, {name: f"198.18.78.{index + 10}" for index, name in enumerate(names)})
    try:
        pods.up()
        (pods.directory / "hosts.json").write_text(json.dumps(inventory(pods)))
        title = f"{workers + 1} ssh ray start, all ALIVE"
        compare(pods, title, lambda: raw_up(pods), lambda: raw_down(pods))
    finally:
        pods.down()


if __name__ == "__main__":
    main()
