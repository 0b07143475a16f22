"""Files and programs below a root, and real processes that answer, fail and hang."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.module_utils.preflight import reading
from ansible_collections.argus.verl.plugins.module_utils.preflight.reading import Process, Reader, Reading
from preflight_tree import OURS, THEIRS, Tree


def test_files_below_the_root(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.file("/sys/a/one", " 1 \n")
    tree.file("/sys/a/two", "\0")
    found = tree.reader()
    assert [path.name for path in found.paths("/sys/a/*")] == ["one", "two"]
    assert found.text("/sys/a/one") == found.text(tree.root / "sys/a/one") == "1"
    assert found.text("/sys/none") == found.text("/sys/a") == ""
    assert found.paths("/none/*") == []
    monkeypatch.setattr(reading, "LONGEST", 3)
    tree.file("/sys/a/one", "12345")
    assert found.text("/sys/a/one") == "123"


def test_programs_share_the_time_of_their_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []
    now = [100.0]
    monkeypatch.setattr(reading.time, "monotonic", lambda: now[0])

    def run(argv: Sequence[str], seconds: float) -> tuple[int, str, str]:
        given.append(seconds)
        return 0, " ".join(argv), ""

    monkeypatch.setattr(reading, "run_program", run)
    found = Reader(seconds=10)
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
    assert list(found.processes()) == [Process(1, "a (b) c", "D"), Process(20, "raylet", "S")]
    tree.file("/proc/7/environ", "PATH=/bin\0ARGUS_VERL_NODE_DIRECTORY=/home/ml/nodes/gpu-1\0")
    tree.file("/proc/8/environ", "NOT_ARGUS_VERL_NODE_DIRECTORY=/home/ml\0")
    placed = [found.placed(Process(pid, "python3")) for pid in (20, 1, 99, 7, 8)]
    assert [each.container for each in placed] == [OURS, "", "", "", ""]
    assert [each.of_node for each in placed] == [False, False, False, True, False]


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
    assert tree.reader().placed(Process(5, "python3")).container == container


LATE = {"error": "no answer in time"}


def hang() -> None:
    time.sleep(600)


def fail() -> None:
    raise ValueError("a broken file")


def test_answers_and_errors() -> None:
    readings = {"answer": lambda: Process(1, "ray"), "failure": fail, "exit": lambda: os._exit(3)}
    found = Reading({**readings, "unsendable": lambda: fail.__code__}, 30).answers()
    assert found["answer"] == {"answer": Process(1, "ray")}
    assert found["failure"] == {"error": "ValueError: a broken file"}
    assert found["exit"] == {"error": "the process that reads ended without an answer"}
    assert "answer" not in found["unsendable"]


def test_nothing_to_read() -> None:
    assert Reading({}, 1).answers() == {}


def test_one_that_hangs_does_not_delay_the_others() -> None:
    found = Reading({"hangs": hang, "answers": lambda: 1}, 0.5).answers()
    assert found == {"hangs": LATE, "answers": {"answer": 1}}


def test_one_that_hangs_is_killed(tmp_path: Path) -> None:
    def note_and_hang() -> None:
        (tmp_path / "pid").write_text(str(os.getpid()))
        hang()

    assert Reading({"hangs": note_and_hang}, 1).answers() == {"hangs": LATE}
    pid = int((tmp_path / "pid").read_text())
    # It is a zombie, or gone.
    for _attempt in range(200):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                break
        except FileNotFoundError:
            break
        time.sleep(0.05)
    else:
        raise AssertionError("it still runs")


def test_one_that_cannot_be_killed_is_left_alone() -> None:
    """A process that hangs in the kernel gets no signal."""
    killed: list[tuple[int, int]] = []
    kill, killpg = os.kill, os.killpg
    try:
        reading.os.kill = reading.os.killpg = lambda pid, number: killed.append((pid, number))  # type: ignore[assignment]
        assert Reading({"hangs": hang}, 0.1).answers() == {"hangs": LATE}
    finally:
        os.kill, os.killpg = kill, killpg
    pid = killed[0][0]
    assert killed == [(pid, signal.SIGKILL)] * 2
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_an_answer_that_is_longer_than_a_pipe_waits_for_its_reader() -> None:
    started = Reading({"long": lambda: "x" * 1_000_000}, 0.2)
    time.sleep(0.3)
    assert len(started.answers()["long"]["answer"]) == 1_000_000


def test_children_hold_no_pipe_of_ansible() -> None:
    def read() -> list[str]:
        return [str(Path(f"/proc/self/fd/{number}").readlink()) for number in range(3)]

    assert Reading({"read": read}, 30).answers() == {"read": {"answer": ["/dev/null"] * 3}}
