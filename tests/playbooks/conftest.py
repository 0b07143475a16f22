"""The cluster of these tests: some need that there is none, and the others bring it up, or find it as it was left."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from system import REPO, SHARED_ROOT, playbook

STATE = REPO / ".cache" / "test" / "state" / "test"


def listed(*kind: str) -> str:
    command = ["docker", *kind, "--quiet", "--filter", "label=argus.verl.cluster=test"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def remove_cluster() -> None:
    """Run cluster_down if anything is there: most tests are about what is refused before anything starts."""
    if listed("container", "ls", "--all") or listed("network", "ls") or STATE.exists():
        playbook("cluster_down", allow_disruption=True)


@pytest.fixture(autouse=True, scope="session")
def clean() -> Iterator[None]:
    SHARED_ROOT.mkdir(parents=True, exist_ok=True)
    remove_cluster()
    yield
    remove_cluster()


@pytest.fixture
def no_cluster(clean: None) -> None:
    remove_cluster()
