"""No process of a job on the nodes that it avoids: what Ray is asked for, with a stand-in for Ray."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from argus.launcher import avoidance, isolation, redact

OTHERS = {"ray.io/node-id": "!in(n1,n2)"}


class Remote:
    """As Ray's classes of actors and of tasks."""

    def _remote(self, args: Any = None, kwargs: Any = None, **options: Any) -> dict[str, Any]:
        return {"args": args, "kwargs": kwargs, **options}


def placement_group(bundles: list[Any], strategy: str = "PACK", bundle_label_selector: Any = None) -> Any:
    return bundles, strategy, bundle_label_selector


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    modules = {
        name: ModuleType(name)
        for name in ("ray", "ray.util", "ray.util.placement_group", "ray.actor", "ray.remote_function")
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    ray: Any = modules["ray"]
    ray.util = modules["ray.util"]
    ray.nodes = lambda: [{"NodeID": "n1"}, {"NodeID": "n2"}, {"NodeID": "n3"}]
    modules["ray.util.placement_group"].placement_group = ray.util.placement_group = placement_group  # type: ignore[attr-defined]
    ray.actor, ray.remote_function = modules["ray.actor"], modules["ray.remote_function"]
    ray.actor.ActorClass = type("ActorClass", (Remote,), {})
    ray.remote_function.RemoteFunction = type("RemoteFunction", (Remote,), {})
    monkeypatch.setenv(avoidance.VARIABLE, "n1,n2")
    monkeypatch.setenv(redact.ARCHIVE, str(tmp_path))
    return ray


def test_the_ids_of_nodes() -> None:
    nodes = [
        {"node_name": name, "node_id": node_id, "state": state}
        for name, node_id, state in [
            ("w-0", "dead", "DEAD"),
            ("w-0", "old", "ALIVE"),
            ("w-0", "new", "ALIVE"),
            ("w-1", "other", "ALIVE"),
        ]
    ]
    assert avoidance.ids_of(("w-0", "w-2"), nodes) == ["old", "new"]


def test_placement_groups_are_on_other_nodes(ray: Any) -> None:
    avoidance.enter()
    # Under both names that Ray has for the function.
    for make in (ray.util.placement_group, sys.modules["ray.util.placement_group"].placement_group):
        assert make([{}, {}], strategy="STRICT_PACK") == ([{}, {}], "STRICT_PACK", [OTHERS, OTHERS])
        assert make([{}], "PACK", bundle_label_selector=[{"a": "b"}]) == ([{}], "PACK", [{"a": "b"}])


def test_nodes_to_choose_from_are_the_others(ray: Any) -> None:
    avoidance.enter()
    assert ray.nodes() == [{"NodeID": "n3"}]


@pytest.mark.parametrize("kind", ["actor.ActorClass", "remote_function.RemoteFunction"])
def test_actors_and_tasks_without_a_place_are_on_other_nodes(ray: Any, kind: str) -> None:
    avoidance.enter()
    module, name = kind.split(".")
    remote = getattr(getattr(ray, module), name)()._remote
    assert remote((1,), {"a": 2}, num_cpus=1) == {
        "args": (1,),
        "kwargs": {"a": 2},
        "num_cpus": 1,
        "label_selector": OTHERS,
    }
    assert remote(scheduling_strategy="SPREAD")["label_selector"] == OTHERS
    for place in ("scheduling_strategy", "placement_group", "label_selector"):
        where = object()
        assert remote(**{place: where}) == {"args": None, "kwargs": None, place: where}


def test_another_job_changes_nothing(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(avoidance.VARIABLE)
    avoidance.enter()
    assert ray.util.placement_group is placement_group
    assert len(ray.nodes()) == 3


def test_every_worker_process_enters(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "isolate", lambda: None)
    isolation.enter_worker()
    assert ray.nodes() == [{"NodeID": "n3"}]


def test_a_trainer_runs_as_if_it_were_started_itself(
    ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "some_trainer.py").write_text("import sys, ray\nprint(__name__, sys.argv, ray.nodes())\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "argv", ["avoidance.py", "some_trainer", "a=1", "b='c d'"])
    avoidance.main()
    argv = [str(tmp_path / "some_trainer.py"), "a=1", "b='c d'"]
    assert capsys.readouterr().out == f"__main__ {argv} {ray.nodes()}\n"
