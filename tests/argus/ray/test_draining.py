from __future__ import annotations

from pathlib import Path

from argus.jobs.registry import Registry
from argus.ray.departures import Removal, draining, forget_all_draining_but, remember_draining, removed_under


def test_nodes_are_remembered_until_ray_does_not_know_them(tmp_path: Path) -> None:
    assert draining(tmp_path) == frozenset()
    for node in ("a" * 56, "b" * 56, "a" * 56):
        remember_draining(node, tmp_path)
    (tmp_path / "grpo-1.json").write_text("{}")
    assert draining(tmp_path) == {"a" * 56, "b" * 56}
    # They are no jobs.
    assert Registry(tmp_path).ids() == ["grpo-1"]
    forget_all_draining_but(frozenset({"b" * 56}), tmp_path)
    assert draining(tmp_path) == {"b" * 56}
    assert (tmp_path / "grpo-1.json").exists()


def test_attempts_that_end_with_a_removed_node(tmp_path: Path) -> None:
    remember_draining("a" * 56, tmp_path, Removal("worker-0", ("sft-1", "sft-2")))
    remember_draining("a" * 56, tmp_path, Removal("worker-0", ("grpo-1~2",)))
    remember_draining("b" * 56, tmp_path)
    # It is asked for again, as drain.yml is run twice.
    remember_draining("a" * 56, tmp_path)
    assert removed_under("grpo-1~2", tmp_path) == "worker-0"
    # Another attempt of the same job has another cause, and the first request was replaced.
    assert [removed_under(attempt, tmp_path) for attempt in ("grpo-1", "sft-1", "")] == ["", "", ""]
    assert draining(tmp_path) == {"a" * 56, "b" * 56}
    (tmp_path / ".draining-0").write_text('{"node": 7, "attempts": "grpo-1"}')
    (tmp_path / ".draining-1").write_text("{")
    assert removed_under("grpo-1", tmp_path) == ""
