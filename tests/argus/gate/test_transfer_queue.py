"""How a job uses TransferQueue, from its composed configuration."""

from __future__ import annotations

from typing import Any

import pytest
from jobs import planned

from argus.checks.common import Configuration
from argus.gate.gate import with_queue


def config(backend: Any = "SimpleStorage", units: Any = 8, **trainer: Any) -> Configuration:
    storage = {"storage_backend": backend, "SimpleStorage": {"num_data_storage_units": units}}
    return Configuration({"trainer": trainer, "transfer_queue": {"backend": storage}})


@pytest.mark.parametrize(
    ("composed", "settings"),
    [
        (config(), (True, 8, "")),
        (config(units=3, use_v1=True), (True, 3, "")),
        (config(units=-1), (True, 0, "")),
        # Another check reports this one.
        (config(units="many"), (True, 8, "")),
        (Configuration({}), (True, 8, "")),
        (config(use_v1=False), (False, 0, "")),
        (config("RayStore"), (True, 0, "")),
        (config("MooncakeStore"), (True, 0, "MooncakeStore")),
        (config("Yuanrong"), (True, 0, "Yuanrong")),
        # Nothing is known about it.
        (config("Another"), (True, 0, "Another")),
    ],
)
def test_the_plan_has_the_settings_of_the_queue(composed: Configuration, settings: tuple[bool, int, str]) -> None:
    plan = with_queue(planned(), composed).plan
    assert (plan.transfer_queue, plan.storage_units, plan.exclusive_backend) == settings


def test_a_job_without_a_queue_stays_as_it_is() -> None:
    sft = planned(workload="sft")
    assert with_queue(sft, config()) == sft
