"""The plan of a job, as it is stored in the archive and read by launcher, steward and other versions."""

from __future__ import annotations

from argus.archive.plan import Plan
from argus.io.schema import parse


def test_a_plan_of_another_version() -> None:
    """Keys that this version does not know are ignored; those that the other version lacked have their defaults."""
    plan = parse(Plan, {"workload": "sft", "from_the_future": 1, "secrets": None})
    assert plan == Plan(workload="sft")
    assert (plan.retries, plan.on_stall, plan.stall_timeout, plan.transfer_queue) == (0, "report", None, False)
    assert (plan.address, plan.entrypoint_num_cpus) == ("http://127.0.0.1:8265", 1)
