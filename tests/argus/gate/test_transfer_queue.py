"""How a job uses TransferQueue, from its composed configuration."""

from __future__ import annotations

from typing import Any

import pytest
from jobs import planned

from argus.checks.common import Configuration
from argus.gate.transfer_queue import QueueSettings, with_queue


def config(backend: Any = "SimpleStorage", units: Any = 8, **trainer: Any) -> Configuration:
    storage = {"storage_backend": backend, "SimpleStorage": {"num_data_storage_units": units}}
    return Configuration({"trainer": trainer, "transfer_queue": {"backend": storage}})


@pytest.mark.parametrize(
    ("composed", "settings"),
    [
        (config(), QueueSettings(True, 8)),
        (config(units=3, use_v1=True), QueueSettings(True, 3)),
        (config(units=-1), QueueSettings(True, 0)),
        # Another check reports this one.
        (config(units="many"), QueueSettings(True, 8)),
        (Configuration({}), QueueSettings(True, 8)),
        (config(use_v1=False), QueueSettings(False)),
        (config("RayStore"), QueueSettings(True, 0)),
        (config("MooncakeStore"), QueueSettings(True, 0, "MooncakeStore")),
        (config("Yuanrong"), QueueSettings(True, 0, "Yuanrong")),
        # Nothing is known about it.
        (config("Another"), QueueSettings(True, 0, "Another")),
    ],
)
def test_the_settings_of_a_queue(composed: Configuration, settings: QueueSettings) -> None:
    assert QueueSettings.of(composed) == settings


def test_the_plan_gets_them() -> None:
    plan = with_queue(planned(), QueueSettings(True, 3, "Yuanrong")).plan
    assert (plan.transfer_queue, plan.storage_units, plan.exclusive_backend) == (True, 3, "Yuanrong")
    assert not with_queue(planned(), QueueSettings(False)).plan.transfer_queue
    sft = planned(workload="sft")
    assert with_queue(sft, QueueSettings(True, 3)) == sft
