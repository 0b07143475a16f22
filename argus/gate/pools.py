# SPDX-License-Identifier: Apache-2.0
"""The GPU pools that a trainer makes beside its own, derived from the composed configuration, and checks of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from ..archive.plan import Plan, Pool
from ..checks.request import Configuration, flatten
from ..common.findings import Finding, about
from ..jobspec.capacity import make_pool
from ..jobspec.spec import POOLS, JobSpec
from ..queue.demand import Demand, capacity_problem
from ..ray.records import WorkerCapacity

GPUS_NAME = "n_gpus_per_node"
# The overrides without which verl does not make these pools.
SWITCH_OVERRIDES = {
    "rollout": "trainer.v1.trainer_mode=separate_async",
    "reward": "reward.reward_model.enable=True",
    "teacher": "distillation.enabled=True",
}


def used_pools(config: Configuration, is_custom_trainer: bool = False) -> tuple[Pool, ...]:
    """The pools beside the trainer's. A custom trainer makes one for each section with nnodes and n_gpus_per_node."""
    # trainer/ppo/v1/trainer_base.py:_init_resource_pool_mgr, workers/rollout/llm_server.py:LLMServerManager
    reward = POOLS["reward"]
    is_used = {
        "rollout": config.get("trainer.v1.trainer_mode") == "separate_async",
        "reward": config.get(f"{reward}.enable") and config.get(f"{reward}.enable_resource_pool"),
        "teacher": config.get("distillation.enabled"),
    }
    sections = {name: section for name, section in POOLS.items() if is_used[name]}
    if is_custom_trainer:
        keys = (key.rpartition(".") for key, _value in flatten(config.values))
        verl_sections = {"trainer", *POOLS.values()}
        sections |= {name: name for name, _dot, number in keys if number == GPUS_NAME and name not in verl_sections}
    sizes = {
        name: (config.number(f"{section}.nnodes"), config.number(f"{section}.{GPUS_NAME}"))
        for name, section in sections.items()
    }
    return tuple(make_pool(name, *size) for name, size in sizes.items() if min(size) > 0)


def pool_findings(spec: JobSpec, used: Iterable[Pool], workers: Sequence[WorkerCapacity], plan: Plan) -> list[Finding]:
    """Findings about pools of the JobSpec that verl does not use, and about a plan that can never fit the workers."""
    names = {used_pool.name for used_pool in used}
    findings = []
    for name, (nnodes, _gpus) in spec.pools.items():
        if nnodes is None:
            problem, remedy = "has no nnodes", "set it, or remove the pool"
            findings.append(about(f"resources.pools.{name}", problem, remedy))
        elif name not in names:
            remedy = f"set {SWITCH_OVERRIDES[name]}, or remove it"
            findings.append(about(f"resources.pools.{name}", "is not used", remedy))
    empty_workers = [replace(worker, free_gpus=worker.gpus, free_cpus=worker.cpus) for worker in workers]
    if plan.pools and not findings and (problem := capacity_problem(empty_workers, Demand.of(plan))):
        remedy = "ask for fewer workers or GPUs in resources, or add workers to the inventory and run cluster_up.yml"
        findings.append(about("resources.pools", f"the cluster is too small: {problem}", remedy))
    return findings
