"""Nodes that leave: those that were lost under jobs, those that get no new work, and machines that are taken away."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from argus.jobs.registry import Registry
from argus.ray import departures
from argus.ray.departures import (
    LOSS_MEMORY_SECONDS,
    Removal,
    bad_nodes,
    draining_nodes,
    forget_all_draining_but,
    forget_losses,
    node_removed_under,
    remember_draining,
    remember_loss,
)


def test_nodes_that_were_lost_under_two_jobs_within_a_day(tmp_path: Path) -> None:
    moment = time.time()
    for node, job in (("gpu-1", "a"), ("gpu-1", "a"), ("gpu-2", "a"), ("gpu-2", "b"), ("gpu-3", "b"), ("gpu-3", "c")):
        remember_loss(tmp_path, node, job, moment)
    assert bad_nodes(tmp_path, moment) == {"gpu-2": ["a", "b"], "gpu-3": ["b", "c"]}
    # They are no jobs.
    assert Registry(tmp_path).ids() == []
    forget_losses(tmp_path, "gpu-2")
    assert list(bad_nodes(tmp_path, moment)) == ["gpu-3"]
    (old,) = tmp_path.glob("*c@gpu-3")
    os.utime(old, (moment - LOSS_MEMORY_SECONDS - 1,) * 2)
    assert bad_nodes(tmp_path, moment) == {}
    remember_loss(tmp_path, "gpu-4", "d", moment)
    assert not old.exists()


def test_nodes_are_remembered_until_ray_does_not_know_them(tmp_path: Path) -> None:
    assert draining_nodes(tmp_path) == frozenset()
    for node in ("a" * 56, "b" * 56, "a" * 56):
        remember_draining(node, tmp_path)
    (tmp_path / "grpo-1.json").write_text("{}")
    assert draining_nodes(tmp_path) == {"a" * 56, "b" * 56}
    # They are no jobs.
    assert Registry(tmp_path).ids() == ["grpo-1"]
    forget_all_draining_but(frozenset({"b" * 56}), tmp_path)
    assert draining_nodes(tmp_path) == {"b" * 56}
    assert (tmp_path / "grpo-1.json").exists()


def test_attempts_that_end_with_a_removed_node(tmp_path: Path) -> None:
    remember_draining("a" * 56, tmp_path, Removal("worker-0", ("sft-1", "sft-2")))
    remember_draining("a" * 56, tmp_path, Removal("worker-0", ("grpo-1~2",)))
    remember_draining("b" * 56, tmp_path)
    # It is asked for again, as drain.yml is run twice.
    remember_draining("a" * 56, tmp_path)
    assert node_removed_under("grpo-1~2", tmp_path) == "worker-0"
    # Another attempt of the same job has another cause, and the first request was replaced.
    assert [node_removed_under(attempt, tmp_path) for attempt in ("grpo-1", "sft-1", "")] == ["", "", ""]
    assert draining_nodes(tmp_path) == {"a" * 56, "b" * 56}
    (tmp_path / ".draining-0").write_text('{"node": 7, "attempts": "grpo-1"}')
    (tmp_path / ".draining-1").write_text("{")
    assert node_removed_under("grpo-1", tmp_path) == ""


def test_jobs_are_stopped_some_minutes_before(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = departures.ending_environment(1_795_358_505, 2.5)
    assert environment == {
        "ARGUS_VERL_STOP_AT": "1795358355",
        "MLP_CURRENT_CAPACITY_BLOCK_EXPIRATION_TIMESTAMP": "1795358355",
    }
    monkeypatch.setenv(departures.STOP_AT_VARIABLE, environment[departures.STOP_AT_VARIABLE])
    assert departures.read_stop_at() == 1_795_358_355
    assert departures.ending_problem(1_795_358_354.9) == ""
    assert "are stopped at 14:39 UTC on 2026-11-22" in departures.ending_problem(1_795_358_355)


@pytest.mark.parametrize("text", ["", "soon", "nan"])
def test_what_is_no_time_stops_nothing(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(departures.STOP_AT_VARIABLE, text)
    assert departures.read_stop_at() is None and departures.ending_problem(1e12) == ""
