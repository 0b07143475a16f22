from __future__ import annotations

from collections.abc import Sequence

import pytest
from ansible_collections.argus.verl.plugins.module_utils.preflight import reader
from ansible_collections.argus.verl.plugins.module_utils.preflight.processes import (
    Process,
    container_of,
    is_ours,
    processes,
)
from ansible_collections.argus.verl.plugins.module_utils.preflight.reader import Reader
from preflight_tree import OURS, THEIRS, Tree


def test_files_below_the_root(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.file("/sys/a/one", " 1 \n")
    tree.file("/sys/a/two", "\0")
    found = tree.reader()
    assert [path.name for path in found.paths("/sys/a/*")] == ["one", "two"]
    assert found.text("/sys/a/one") == found.text(tree.root / "sys/a/one") == "1"
    assert found.text("/sys/none") == found.text("/sys/a") == ""
    assert found.paths("/none/*") == []
    monkeypatch.setattr(reader, "LONGEST", 3)
    tree.file("/sys/a/one", "12345")
    assert found.text("/sys/a/one") == "123"


def test_programs_share_the_time_of_their_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []
    now = [100.0]
    monkeypatch.setattr(reader.time, "monotonic", lambda: now[0])

    def run(argv: Sequence[str], seconds: float) -> tuple[int, str, str]:
        given.append(seconds)
        return 0, " ".join(argv), ""

    found = Reader(run, seconds=10)
    assert found.run("a", "b").out == "a b"
    found.run("a", seconds=3)
    now[0] = 108.0
    found.run("a", seconds=3)
    now[0] = 200.0
    found.run("a")
    assert given == [9.0, 3, 1.0, 0.1]


def test_processes(tree: Tree) -> None:
    tree.process(1, "a (b) c", "D")
    tree.process(20, "raylet", "S", OURS)
    tree.file("/proc/30/stat", "")
    tree.file("/proc/stat", "cpu 1")
    found = tree.reader()
    assert list(processes(found)) == [Process(1, "a (b) c", "D"), Process(20, "raylet", "S")]
    assert (container_of(found, 20), container_of(found, 1), container_of(found, 99)) == (OURS, "", "")


@pytest.mark.parametrize(
    ("line", "container"),
    [
        (f"0::/system.slice/docker-{OURS}.scope", OURS),
        (f"12:pids:/docker/{OURS}", OURS),
        (f"0::/machine.slice/libpod-{OURS}.scope/container", OURS),
        (f"0::/docker/{THEIRS}/docker/{OURS}", OURS),
        (f"0::/docker/{'a' * 65}", ""),
        ("0::/user.slice", ""),
    ],
)
def test_names_of_cgroups(tree: Tree, line: str, container: str) -> None:
    tree.file("/proc/5/cgroup", f"{line}\n")
    assert container_of(tree.reader(), 5) == container


def test_ours() -> None:
    assert is_ours(OURS, {OURS})
    assert not is_ours(THEIRS, {OURS})
    assert not is_ours("", {""})
