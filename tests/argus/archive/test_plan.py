"""The plan of a job, as it is stored in the archive and read by launcher, steward and other versions."""

from __future__ import annotations

import dataclasses
import json

import pytest

from argus.archive.plan import Plan
from argus.io.schema import json_text, parse

PLAN = Plan(
    code_path="/private/common/code/verl/x",
    code_id="x",
    module="verl.trainer.main_ppo",
    overrides=("a=1", "b=2"),
    driver_env={"NCCL_ALGO": "Ring"},
    address="http://127.0.0.1:9000",
    entrypoint="python3 launcher",
    entrypoint_resources={"worker_node": 1},
    entrypoint_num_cpus=0.5,
    workload="grpo",
    launcher="torchrun",
    nnodes=2,
    gpus_per_node=4,
    cpus_per_node=12,
    secrets=("HF_TOKEN",),
    retries=3,
    on_stall="stop",
    deadline=3600.0,
    wait_for_resources=60.0,
    priority=10,
    queue_patience=60.0,
    start_timeout=3600.0,
    stall_timeout=None,
    transfer_queue=True,
    depends_on="sft-1",
    resumed_from="grpo-1",
    resumed_from_step=30,
)


def test_a_plan_survives_its_file() -> None:
    stored = json.loads(json_text(PLAN))
    assert set(stored) == {field.name for field in dataclasses.fields(Plan)}
    assert (stored["overrides"], stored["secrets"]) == (["a=1", "b=2"], ["HF_TOKEN"])
    assert parse(Plan, stored) == PLAN


def test_a_plan_of_another_version() -> None:
    """Keys that this version does not know are ignored; those that the other version lacked have their defaults."""
    plan = parse(Plan, {"workload": "sft", "from_the_future": 1, "secrets": None})
    assert plan == Plan(workload="sft")
    assert (plan.retries, plan.on_stall, plan.stall_timeout, plan.transfer_queue) == (0, "report", None, False)
    assert (plan.address, plan.entrypoint_num_cpus) == ("http://127.0.0.1:8265", 1)


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(Plan)])
def test_every_key_is_read(name: str) -> None:
    assert getattr(parse(Plan, {name: json.loads(json_text(PLAN))[name]}), name) == getattr(PLAN, name)
