"""Each job has a TransferQueue of its own: what the hook changes in a worker process, with a stand-in for Ray."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from argus.hooks import isolation, worker_secrets
from argus.hooks.isolation import CONTROLLER_NAME, FOREIGN_ACTOR_TEXT

OWN, OTHER = "02000000", "01000000"


class Ray(ModuleType):
    """The named actors of a cluster, as ray.get_actor and ActorClass.options know them."""

    def __init__(self) -> None:
        super().__init__("ray")
        self.named: dict[tuple[str, str | None], str] = {}
        self.job_id = OWN

    def get_actor(self, name: str, namespace: str | None = None) -> Any:
        if (name, namespace) not in self.named:
            raise ValueError(f"no actor {name} in {namespace}")
        creator = SimpleNamespace(hex=lambda: self.named[name, namespace])
        return SimpleNamespace(_actor_id=SimpleNamespace(job_id=creator))

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(get_job_id=lambda: self.job_id)


class ActorClass:
    def options(self, **arguments: Any) -> dict[str, Any]:
        return arguments


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ray:
    module, actor = Ray(), ModuleType("ray.actor")
    actor.ActorClass = type("ActorClass", (ActorClass,), {"options": ActorClass.options})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", module)
    monkeypatch.setitem(sys.modules, "ray.actor", actor)
    monkeypatch.setenv(worker_secrets.ARCHIVE_VARIABLE, str(tmp_path / "jobs" / "grpo-2"))
    return module


def options(**arguments: Any) -> Any:
    return sys.modules["ray.actor"].ActorClass().options(**arguments)


def test_the_queue_is_created_and_found_in_a_namespace_of_the_job(ray: Ray) -> None:
    # A worker process runs the hook before it knows its job.
    ray.job_id = ""
    isolation.isolate_transfer_queue()
    ray.job_id = OWN
    assert options(name=CONTROLLER_NAME, namespace="transfer_queue") == {
        "name": CONTROLLER_NAME,
        "namespace": f"transfer_queue-{OWN}",
    }
    # The queue of another job has the name that all jobs would use.
    ray.named[CONTROLLER_NAME, "transfer_queue"] = OTHER
    with pytest.raises(ValueError, match="no actor TransferQueueController in transfer_queue-02000000"):
        ray.get_actor(CONTROLLER_NAME, namespace="transfer_queue")
    ray.named[CONTROLLER_NAME, f"transfer_queue-{OWN}"] = OWN
    assert ray.get_actor(CONTROLLER_NAME, namespace="transfer_queue")._actor_id.job_id.hex() == OWN
    assert ray.get_actor(CONTROLLER_NAME, "transfer_queue")


@pytest.mark.parametrize("name", [CONTROLLER_NAME, "RayObjectRefStorage"])
def test_an_actor_of_another_job_is_refused(ray: Ray, name: str) -> None:
    isolation.isolate_transfer_queue()
    ray.named[name, f"transfer_queue-{OWN}"] = OTHER
    with pytest.raises(RuntimeError, match=f"{name} {FOREIGN_ACTOR_TEXT}: .*{OTHER}"):
        ray.get_actor(name, namespace="transfer_queue")


@pytest.mark.parametrize("namespace", [None, "", "mine", "transfer_queue_of_mine"])
def test_other_actors_stay_as_they_are(ray: Ray, namespace: str | None) -> None:
    isolation.isolate_transfer_queue()
    ray.named[CONTROLLER_NAME, namespace] = OTHER
    assert ray.get_actor(CONTROLLER_NAME, namespace)
    assert options(namespace=namespace, num_cpus=1) == {"namespace": namespace, "num_cpus": 1}
    assert options(num_cpus=1) == {"num_cpus": 1}


def test_without_secrets_the_output_stays_as_it_is(ray: Ray) -> None:
    before = sys.stdout, sys.stderr, dict(os.environ)
    isolation.enter_worker()
    assert (sys.stdout, sys.stderr, dict(os.environ)) == before
