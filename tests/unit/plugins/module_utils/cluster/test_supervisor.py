"""The decisions of the supervisor; test_node_process.py runs it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.module_utils.cluster import supervisor
from ansible_collections.argus.verl.plugins.module_utils.cluster.supervisor import ancestors, descendants, next_pause

PARENTS = {1: 0, 10: 1, 11: 10, 12: 11, 20: 1, 21: 20}


@pytest.mark.parametrize(
    ("pause", "lived", "expected"),
    [(0, 1, 0.1), (0.1, 1, 0.2), (0.2, 9.9, 0.4), (40, 1, 60), (60, 1, 60), (60, 10, 0.1), (0.4, 100, 0.1)],
)
def test_the_pause_doubles_until_ray_has_run_for_a_while(pause: float, lived: float, expected: float) -> None:
    assert next_pause(pause, lived) == pytest.approx(expected)


def test_descendants_and_ancestors() -> None:
    assert descendants(10, PARENTS) == {11, 12}
    assert descendants(12, PARENTS) == set()
    assert ancestors(12, PARENTS) == {12, 11, 10, 1}
    assert ancestors(7, PARENTS) == {7}
    # A process that is gone while they are read may leave a circle.
    assert descendants(5, {5: 6, 6: 5}) == {5, 6}
    assert ancestors(5, {5: 6, 6: 5}) == {5, 6}


def test_parents_are_read_whatever_the_name_is(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("7 (a) b 1 2) S 3 7 7 0")
    (tmp_path / "8").mkdir()
    (tmp_path / "9").mkdir()
    (tmp_path / "9" / "stat").write_text("")
    assert supervisor.parents(tmp_path) == {7: 3}


def test_the_mark_is_one_whole_variable(tmp_path: Path) -> None:
    for pid, environment in {
        5: b"A=1\0ARGUS_VERL_NODE_DIRECTORY=/n/w\0",
        6: b"ARGUS_VERL_NODE_DIRECTORY=/n/w2\0",
        7: b"XARGUS_VERL_NODE_DIRECTORY=/n/w\0",
        8: b"A=ARGUS_VERL_NODE_DIRECTORY=/n/w\0",
    }.items():
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "environ").write_bytes(environment)
    (tmp_path / "9").mkdir()
    assert supervisor.marked("/n/w", tmp_path) == {5}


def test_a_log_that_is_too_large_has_a_second_file(tmp_path: Path) -> None:
    log = tmp_path / "node.log"
    assert not supervisor.rotate(log, 4)
    with log.open("a") as kept:
        kept.write("abc")
        kept.flush()
        assert not supervisor.rotate(log, 4)
        kept.write("d")
        kept.flush()
        assert supervisor.rotate(log, 4)
        kept.write("after")
    assert (tmp_path / "node.log.1").read_text() == "abcd"
    assert log.read_text() == "after"
    assert supervisor.rotate(log, 1)
    assert (tmp_path / "node.log.1").read_text() == "after"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["node.log", "node.log.1"]


def test_the_lock_is_free_again_when_it_is_closed(tmp_path: Path) -> None:
    first = supervisor.take_lock(tmp_path)
    assert first is not None
    assert supervisor.take_lock(tmp_path) is None
    os.close(first)
    second = supervisor.take_lock(tmp_path)
    assert second is not None
    os.close(second)
