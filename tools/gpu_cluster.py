"""The cluster on one machine with GPUs that gpu_check.py tries: its inventory, its jobs, and the kills of processes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO))

from argus.common import node_process

WORK = REPO / ".cache" / "gpu_check"
RESULTS = WORK / "results"
# The machine may have another cluster, with the usual name and ports.
CLUSTER, PORT_BASE = "gpucheck", 27000
WAIT_SECONDS = 900


class GpuCluster:
    """A head and up to two workers on this machine, used through the command argus.

    Two workers share the GPUs, so that the deep preflight has a network to check.
    """

    def __init__(self, name: str, gpus: int, is_cpu: bool, variables: dict[str, Any]) -> None:
        """Write the inventory.

        name: of the form of nodes. gpus: of this machine. is_cpu: whether they are logical GPUs.
        variables: of the inventory, with the image or the Python of the nodes.
        """
        self.name, self.gpus, self.is_cpu = name, gpus, is_cpu
        self.state, shared = WORK / f"state-{name}", WORK / f"shared-{name}"
        self.workers = [f"{CLUSTER}-worker-{number}" for number in range(min(gpus, 2))]
        self.has_containers = "cluster_images" in variables
        # The shared root as nodes see it.
        self.root = "/private" if self.has_containers else str(shared)
        variables |= {"shared_root_source" if self.has_containers else "shared_root": str(shared)}
        variables |= {
            **{"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"},
            **{"cluster_name": CLUSTER, "cluster_port_base": PORT_BASE, "cluster_state_dir": str(self.state)},
            **{
                "ray_node_accelerator": "cpu" if is_cpu else "cuda",
                "ray_node_shm_gib": 8,
                "ray_node_start_timeout": 600,
            },
            **{"ray_node_gpus": gpus // len(self.workers), "preflight_gpus": 0 if is_cpu else gpus},
            # Nodes that are processes lack what the image sets.
            "ray_node_env": {"TORCH_COMPILE_DISABLE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"} if is_cpu else {},
            "artifacts_dir": str(RESULTS / "archives"),
            "staging_models": [{"name": "tiny-qwen2", "source": "tiny"}],
            "staging_datasets": [{"name": "gsm8k_tiny", "tiny": True}],
            "staging_snapshots": [{"source": "verl==0.9.1"}],
            "staging_user_code": [str(REPO / "inventories" / "dev" / "rewards" / "digit_share.py")],
        }
        hosts = {"head": {"hosts": {f"{CLUSTER}-head": None}}, "workers": {"hosts": dict.fromkeys(self.workers)}}
        shared.mkdir(parents=True, exist_ok=True)
        self.inventory = WORK / f"{name}.yml"
        self.inventory.write_text(yaml.safe_dump({"ray": {"children": hosts, "vars": variables}}), encoding="utf-8")

    def argus(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of argus, and add its output to the results, unless it is JSON."""
        command = [sys.executable, str(REPO / "bin" / "argus_command.py"), "-i", str(self.inventory), *arguments]
        result = subprocess.run(command, cwd=WORK, text=True, capture_output=True, check=False)
        if "--json" in arguments and result.returncode == 0:
            return result
        with (RESULTS / f"{self.name}.txt").open("a", encoding="utf-8") as log:
            log.write(f"$ argus {' '.join(arguments)}\n{result.stdout}{result.stderr}\n")
        return result

    def job_id(self, name: str) -> str:
        return f"{CLUSTER}-{self.name}-{name}"

    def submit(self, name: str, spec: dict[str, Any]) -> str:
        """Submit a job, and return its id. Raises RuntimeError if the job is refused."""
        file = WORK / f"{self.job_id(name)}.yaml"
        file.write_text(yaml.safe_dump({"submission_id": file.stem, **spec}), encoding="utf-8")
        result = self.argus("submit", str(file))
        if result.returncode:
            raise RuntimeError(f"refused: {(result.stderr or result.stdout).strip()}")
        return file.stem

    def wait(self, submission_id: str, is_reached: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """The status of a job that has ended or meets a condition. Raises RuntimeError if that takes too long."""
        until = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < until:
            result = self.argus("status", submission_id, "--json")
            job = json.loads(result.stdout)["job"] if result.returncode == 0 else {}
            if job and (job["ended"] or is_reached(job)):
                return job
            time.sleep(3)
        self.argus("stop", submission_id)
        raise RuntimeError(f"{submission_id} took longer than {WAIT_SECONDS} s")

    def kill(self, pattern: str, submission_id: str) -> None:
        """Kill the processes of a job that match a pattern, on the first worker that has any.

        If none has any, stops the job, because the next one needs its GPUs, and raises RuntimeError.
        """
        for worker in self.workers:
            if self.has_containers:
                command = ["docker", "exec", worker, "pkill", "-KILL", "-f", pattern]
            else:
                command = ["kill", "-KILL", *self.matching_pids(worker, pattern)]
            if subprocess.run(command, check=False, capture_output=True).returncode == 0:
                return
        self.argus("stop", submission_id)
        raise RuntimeError(f"no worker has a process {pattern}")

    def matching_pids(self, worker: str, pattern: str) -> list[str]:
        """The processes of a node without a container whose command lines match a pattern.

        A worker of Ray puts its title where its environment was, so it is found as a descendant of the node's others.
        """
        pids = node_process.processes(self.state / CLUSTER / node_process.NODES / worker)
        listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
        rows = [line.split(None, 2) for line in listed.stdout.splitlines()]
        while children := {int(pid) for pid, parent, _line in rows if int(parent) in pids} - pids:
            pids |= children
        return [pid for pid, _parent, line in rows if int(pid) in pids and re.match(pattern, line)]
