#!/usr/bin/env python3
"""Try the collection on the GPUs of this machine, and write one file to send: artifacts/gpu_check.tar.gz.

It brings up a cluster, checks it, trains a model of random weights by GRPO with verl's rollout of vLLM, kills a rank
and a worker of the engine, lets GPU memory run out, and removes the cluster. Only verl is downloaded, by pip. The file
has the output of all commands and the jobs' archives without checkpoints, and with them names, paths and users of this
machine.

    make .venv/requirements
    .venv/bin/python tools/gpu_check.py --image IMAGE           nodes are containers of Docker
    .venv/bin/python tools/gpu_check.py --python PYTHON         nodes are processes
    .venv/bin/python tools/gpu_check.py --image IMAGE --cpu     logical GPUs, and the CPU image with vLLM

IMAGE, or the environment of PYTHON, has Ray, verl and vLLM. With both, faults are made in containers only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO))

from argus.common import node_process

WORK = REPO / ".cache" / "gpu_check"
RESULTS, REPORT = WORK / "results", REPO / "artifacts" / "gpu_check.tar.gz"
# The machine may have another cluster, with the usual name and ports.
CLUSTER, PORT_BASE = "gpucheck", 27000
WAIT_SECONDS = 900


class GpuCluster:
    """A cluster on this machine. Two containers share its GPUs, so that the deep preflight has a network to check.

    A worker that is a process has its host for itself.
    """

    def __init__(self, name: str, gpus: int, is_cpu: bool, variables: dict[str, Any]) -> None:
        self.name, self.gpus, self.is_cpu = name, gpus, is_cpu
        self.state, shared = WORK / f"state-{name}", WORK / f"shared-{name}"
        self.has_containers = "cluster_images" in variables
        self.workers = [f"{CLUSTER}-worker-{number}" for number in range(min(gpus, 2) if self.has_containers else 1)]
        # The shared root as nodes see it.
        self.root = "/private" if self.has_containers else str(shared)
        variables |= {"shared_root_source" if self.has_containers else "shared_root": str(shared)}
        variables |= {
            **{"ansible_connection": "local", "ansible_python_interpreter": "{{ ansible_playbook_python }}"},
            **{"cluster_name": CLUSTER, "cluster_port_base": PORT_BASE, "cluster_state_dir": str(self.state)},
            **{"ray_node_accelerator": "cpu" if is_cpu else "cuda", "ray_node_shm_gib": 8},
            "ray_node_start_timeout": 600,
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
        """Kill the processes that match a pattern on the first worker that has any; if none has, stop the job."""
        for worker in self.workers:
            if self.has_containers:
                command = ["docker", "exec", worker, "pkill", "-KILL", "-f", pattern]
            else:
                command = ["kill", "-KILL", *self.matching_pids(worker, pattern)]
            if subprocess.run(command, check=False, capture_output=True).returncode == 0:
                return
        # The next job needs its GPUs.
        self.argus("stop", submission_id)
        raise RuntimeError(f"no worker has a process {pattern}")

    def matching_pids(self, worker: str, pattern: str) -> list[str]:
        """The processes of a node without a container that match a pattern."""
        # A worker of Ray has its title in place of its environment: it is found below its parents.
        pids = node_process.node_pids(self.state / CLUSTER / node_process.NODES_DIR / worker)
        listed = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
        rows = [line.split(None, 2) for line in listed.stdout.splitlines()]
        while children := {int(pid) for pid, parent, _line in rows if int(parent) in pids} - pids:
            pids |= children
        return [pid for pid, _parent, line in rows if int(pid) in pids and re.match(pattern, line)]


# The titles of processes: a rank of the trainer, and a worker of vLLM's engine.
RANK, ENGINE_WORKER = "^ray::(WorkerDict|TrainingWorker)", "^VLLM::Worker"
# The shape of Qwen2.5-0.5B; its vocabulary is the tiny one.
SHAPE = {
    **{"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24},
    **{"num_attention_heads": 14, "num_key_value_heads": 2, "max_position_embeddings": 4096},
}
MAKE_MODEL = """
import json, sys, torch
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM
tiny, shape = sys.argv[1], json.loads(sys.argv[2])
config = Qwen2Config.from_pretrained(tiny).to_dict() | shape
del config["layer_types"]
model = Qwen2ForCausalLM(Qwen2Config(**config)).to(torch.bfloat16)
model.save_pretrained("model")
AutoTokenizer.from_pretrained(tiny).save_pretrained("model")
print(sum(each.numel() for each in model.parameters()), "parameters")
"""
FIGURES = (
    *("timing_s/step", "timing_s/gen", "timing_s/update_actor", "timing_s/update_weights", "perf/throughput"),
    *("perf/mfu/actor", "actor/perf/max_memory_allocated_gb", "actor/perf/max_memory_reserved_gb"),
)
MACHINE_COMMANDS = (["nvidia-smi"], ["nvidia-smi", "topo", "-m"], ["uname", "-a"], ["docker", "version"])


class Check:
    """The steps that are tried on one cluster, and their report."""

    def __init__(self, cluster: GpuCluster) -> None:
        self.cluster = cluster
        self.rows: list[dict[str, Any]] = []
        self.figures: dict[str, float] = {}

    def run(self, with_faults: bool) -> None:
        try:
            self.step("cluster_up", "exit code 0", lambda: self.command("up"))
            self.step("preflight, deep", "exit code 0", lambda: self.command("check", "--tier", "deep"))
            self.step("stage", "exit code 0", lambda: self.command("stage"))
            self.step("a command", "SUCCEEDED", self.make_model)
            self.step("GRPO", "SUCCEEDED", lambda: self.train("grpo", save_freq=5))
            if with_faults:
                self.step("kills", "killed, engine_lost, SUCCEEDED", self.kill_processes)
                small = {"++actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes": 1000}
                self.step("no room for the KV cache", "gpu_oom", lambda: self.train("kv", **small))
                if not self.cluster.is_cpu:
                    self.step("no room for the training", "gpu_oom", self.run_out_of_memory)
        finally:
            self.step("cluster_down", "exit code 0", lambda: self.command("down", "--force"))

    def make_model(self) -> str:
        shape = json.dumps({} if self.cluster.is_cpu else SHAPE)
        command = ["python3", "-c", MAKE_MODEL, f"{self.cluster.root}/common/models/tiny-qwen2", shape]
        return self.outcome(self.cluster.submit("model", {"workload": "command", "command": command}))

    def train(self, name: str, **settings: Any) -> str:
        return self.outcome(self.cluster.submit(name, self.grpo_spec(settings)))

    def kill_processes(self) -> str:
        """Kill a rank once there is a checkpoint, and a worker of the engine once the next attempt has one."""
        cluster = self.cluster
        job = cluster.submit("kills", {**self.grpo_spec({"save_freq": 2, "total_training_steps": 20}), "retries": 2})
        first = cluster.wait(job, lambda seen: seen["checkpoints"])
        cluster.kill(RANK, job)
        cluster.wait(job, lambda seen: max(seen["checkpoints"]) > max(first["checkpoints"]) and seen["attempt"] > 1)
        cluster.kill(ENGINE_WORKER, job)
        return self.outcome(job)

    def run_out_of_memory(self) -> str:
        """Train with eager attention: that of 512 samples at once needs more than a hundred gigabytes in one layer."""
        long = {"data.max_response_length": 2000, "actor_rollout_ref.rollout.n": 8 * self.cluster.gpus}
        eager = {
            "++actor_rollout_ref.model.override_config.attn_implementation": "eager",
            "actor_rollout_ref.model.use_remove_padding": False,
            "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 512,
            "actor_rollout_ref.rollout.ignore_eos": True,
        }
        return self.train("oom", **long, **eager)

    def grpo_spec(self, settings: dict[str, Any]) -> dict[str, Any]:
        """A JobSpec of GRPO. settings: of the trainer, or overrides with dotted keys."""
        cluster = self.cluster
        prompts, samples, length = (8, 4, 32) if cluster.is_cpu else (64, 8, 512)
        overrides = {
            "trainer.total_training_steps": 10,
            "trainer.total_epochs": 100,
            "data.train_batch_size": prompts,
            "data.max_prompt_length": 64,
            "data.max_response_length": length,
            "actor_rollout_ref.actor.ppo_mini_batch_size": prompts,
            "actor_rollout_ref.rollout.name": "vllm",
            "actor_rollout_ref.rollout.n": samples,
            **({} if cluster.is_cpu else {"actor_rollout_ref.rollout.gpu_memory_utilization": 0.5}),
            **{key if "." in key else f"trainer.{key}": value for key, value in settings.items()},
        }
        return {
            **{"workload": "grpo", "code_path": "verl-0.9.1", "dataset": "gsm8k_tiny"},
            "model": f"{cluster.root}/jobs/{cluster.job_id('model')}/output/model",
            "reward_fn_path": "digit_share.py",
            "resources": {"nnodes": len(cluster.workers), "gpus_per_node": cluster.gpus // len(cluster.workers)},
            "trainer_overrides": overrides,
        }

    def step(self, name: str, expected: str, perform: Callable[[], str]) -> None:
        """Perform a step, and add a row with its outcome to the report. An exception is an outcome too."""
        print(f"{self.cluster.name}: {name} ...", flush=True)
        began, self.figures = time.monotonic(), {}
        try:
            seen = perform()
        except Exception as error:
            seen = f"{type(error).__name__}: {error}"
        row = {"nodes": self.cluster.name, "step": name, "expected": expected, "seen": seen, "figures": self.figures}
        self.rows.append({**row, "seconds": round(time.monotonic() - began)})
        mismatch = "" if seen == expected else f" (expected: {expected})"
        print(f"  {seen}{mismatch}, {self.rows[-1]['seconds']} s {self.figures or ''}", flush=True)

    def command(self, *arguments: str) -> str:
        return f"exit code {self.cluster.argus(*arguments).returncode}"

    def outcome(self, submission_id: str) -> str:
        """Wait until a job has ended, keep its archive, status and figures, and return how its attempts ended."""
        job = self.cluster.wait(submission_id, lambda _job: False)
        self.cluster.argus("fetch", submission_id)
        (RESULTS / f"{submission_id}.json").write_text(json.dumps(job, indent=1), encoding="utf-8")
        for file in (RESULTS / "archives" / submission_id / "logs").glob("metrics-*.jsonl"):
            for line in file.read_text("utf-8").splitlines():
                # Each step replaces the figures of the one before.
                metrics = json.loads(line)["data"]
                self.figures = {name: round(metrics[name], 2) for name in FIGURES if name in metrics}
        return ", ".join(attempt["kind"] or attempt["state"] for attempt in job["attempts"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", help="of nodes that are containers")
    parser.add_argument("--python", help="of nodes that are processes")
    parser.add_argument("--gpus", type=int, default=0, help="so many; without it, all")
    parser.add_argument("--cpu", action="store_true", help="logical GPUs")
    options = parser.parse_args()
    if not options.image and not options.python:
        parser.error("needs --image or --python")
    listed = (
        [] if options.cpu else subprocess.run(["nvidia-smi", "-L"], capture_output=True, check=True).stdout.splitlines()
    )
    gpus = options.gpus or len(listed) or 2
    os.environ |= {"ANSIBLE_CONFIG": str(REPO / "ansible.cfg"), "LC_ALL": "C.UTF-8"}
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shutil.rmtree(WORK, ignore_errors=True)
    RESULTS.mkdir(parents=True)
    for command in MACHINE_COMMANDS:
        with (RESULTS / "machine.txt").open("a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(command)}\n")
            log.flush()
            subprocess.run(["timeout", "60", *command], check=False, stdout=log, stderr=subprocess.STDOUT)
    checks = []
    if options.image:
        images = {"cluster_images": {"cpu" if options.cpu else "cuda": options.image}}
        checks.append(Check(GpuCluster("containers", gpus, options.cpu, images)))
    if options.python:
        process = {"ray_node_runtime": "process", "ray_node_python": options.python}
        accepted = {"preflight_accept": ["process.root"] if os.geteuid() == 0 else []}
        checks.append(Check(GpuCluster("processes", gpus, options.cpu, {**process, **accepted})))
    for check in checks:
        check.run(with_faults=check is checks[0])
    rows = [row for check in checks for row in check.rows]
    (RESULTS / "report.json").write_text(json.dumps(rows, indent=1), encoding="utf-8")
    REPORT.parent.mkdir(exist_ok=True)
    with tarfile.open(REPORT, "w:gz") as tar:
        tar.add(RESULTS, "gpu_check")
    print(f"\nSend {REPORT}")
    return int(any(row["seen"] != row["expected"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
