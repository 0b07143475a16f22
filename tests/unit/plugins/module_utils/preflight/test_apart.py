"""Real processes that answer, fail and hang."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from ansible_collections.argus.verl.plugins.module_utils.preflight import apart
from ansible_collections.argus.verl.plugins.module_utils.preflight.apart import Apart

LATE = {"error": "no answer in time"}


def hang() -> None:
    time.sleep(600)


def fail() -> None:
    raise ValueError("a broken file")


def test_answers_and_errors() -> None:
    found = Apart(
        {
            "answer": (lambda: {"a": [1, None]}, 30),
            "failure": (fail, 30),
            "exit": (lambda: os._exit(3), 30),
            "no_json": (lambda: {1j}, 30),
        }
    ).answers()
    assert found["answer"] == {"answer": {"a": [1, None]}}
    assert found["failure"] == {"error": "ValueError: a broken file"}
    assert found["exit"] == {"error": "the process that reads ended without an answer"}
    assert "answer" not in found["no_json"]


def test_nothing_to_read() -> None:
    assert Apart({}).answers() == {}


def test_one_that_hangs_does_not_delay_the_others() -> None:
    found = Apart({"hangs": (hang, 0.1), "answers": (lambda: 1, 30)}).answers()
    assert found == {"hangs": LATE, "answers": {"answer": 1}}


def test_one_that_hangs_is_killed(tmp_path: Path) -> None:
    def note_and_hang() -> None:
        (tmp_path / "pid").write_text(str(os.getpid()))
        hang()

    assert Apart({"hangs": (note_and_hang, 1)}).answers() == {"hangs": LATE}
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
        apart.os.kill = apart.os.killpg = lambda pid, number: killed.append((pid, number))  # type: ignore[assignment]
        assert Apart({"hangs": (hang, 0.1)}).answers() == {"hangs": LATE}
    finally:
        os.kill, os.killpg = kill, killpg
    pid = killed[0][0]
    assert killed == [(pid, signal.SIGKILL)] * 2
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def test_an_answer_that_is_longer_than_a_pipe_waits_for_its_reader() -> None:
    started = Apart({"long": (lambda: "x" * 1_000_000, 0.2)})
    time.sleep(0.3)
    assert len(started.answers()["long"]["answer"]) == 1_000_000


def test_children_hold_no_pipe_of_ansible() -> None:
    def read() -> list[str]:
        return [str(Path(f"/proc/self/fd/{number}").readlink()) for number in range(3)]

    assert Apart({"read": (read, 30)}).answers() == {"read": {"answer": ["/dev/null"] * 3}}
