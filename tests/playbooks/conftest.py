"""Remove the cluster of the tests before and after each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from system import SHARED_ROOT, playbook


@pytest.fixture(autouse=True)
def no_cluster() -> Iterator[None]:
    SHARED_ROOT.mkdir(parents=True, exist_ok=True)
    playbook("cluster_down", allow_disruption=True)
    yield
    playbook("cluster_down", allow_disruption=True)
