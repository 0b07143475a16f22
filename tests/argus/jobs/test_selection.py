from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from argus.jobs.info import JobInfo
from argus.jobs.logs import searched
from argus.jobs.selection import Selection, SelectionError, selected
from argus.launcher import hardware
from argus.launcher.archive import Archive
from argus.launcher.hardware import Measured, Usage

RETRIED = [
    "(run_node pid=3) (rank1 pid=7) one",
    "\x1b[36m(run_node pid=4, ip=10.0.0.2)\x1b[0m (rank11 pid=8) two",
    "[rank1]: RuntimeError: lost, [Rank 11] and [Rank 12]",
    " 50%|## ARGUS_VERL_ATTEMPT=3",
    "(run_node pid=5, ip=10.0.0.20) (rank1 pid=9) three",
    "(run_node pid=5, ip=10.0.0.20) ValueError: four",
]


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        (Selection(), range(6)),
        # Whatever its colour.
        (Selection(r"ip=10\.0\.0\.2\) \(rank"), [1]),
        (Selection(rank="1"), [0, 2, 4]),
        (Selection(rank="11"), [1, 2]),
        (Selection(rank="2"), []),
        (Selection(attempt=2), [0, 1, 2]),
        (Selection(attempt=3), [3, 4, 5]),
        (Selection(attempt=1), []),
        (Selection("o", rank="1", attempt=2), [0, 2]),
    ],
)
def test_lines_of_a_pattern_a_rank_and_an_attempt(selection: Selection, chosen: Sequence[int]) -> None:
    assert selection.of(RETRIED, 2, 0) == [RETRIED[at] for at in chosen]
    assert selection.of(RETRIED, 2, 1) == [RETRIED[at] for at in chosen][-1:]


@pytest.mark.parametrize(
    ("addresses", "chosen"), [(("10.0.0.2",), [1]), (("10.0.0.20", "10.0.0.2"), [1, 4, 5]), (("",), [3])]
)
def test_lines_of_the_addresses_of_a_node(addresses: tuple[str, ...], chosen: list[int]) -> None:
    assert Selection().of(RETRIED, 2, 0, addresses) == [RETRIED[at] for at in chosen]


def test_the_first_error_of_an_attempt() -> None:
    shown = Selection(attempt=3, first_errors=True).of(RETRIED, 2, 0)
    assert shown == ["run_node pid=5, ip=10.0.0.20:", "  ValueError: four"]


# --- In an archive ----------------------------------------------------------------------------------------------------

RUNNING = JobInfo("grpo-1", "RUNNING", driver_host="gpu-1")


def shown(archive: Archive, job: JobInfo = RUNNING, **selection: Any) -> list[str]:
    return selected(archive, replace(job, log_position=archive.log_end()), Selection(**selection), 0, None)


LONG = "x" * (8 << 20)


@pytest.mark.parametrize(
    ("text", "state", "attempt", "first"),
    [
        # Whatever the status says, a log begins with the first attempt.
        ("a\n", "RUNNING", 2, 1),
        ("a\nARGUS_VERL_ATTEMPT=3\n", "RUNNING", 3, 1),
        (f"a\n{LONG}\n", "RUNNING", 4, 4),
        # The attempt that is submitted has written nothing.
        (f"a\n{LONG}\n", "SUBMITTED", 4, 3),
        (f"a\n{LONG}\n", "RETRYING", 4, 4),
        (f"a\n{LONG}\nARGUS_VERL_ATTEMPT=3\n", "RUNNING", 4, 2),
    ],
)
def test_the_attempt_of_the_first_lines(archive: Archive, text: str, state: str, attempt: int, first: int) -> None:
    archive.driver_log.write_text(text)
    job = JobInfo("grpo-1", state, attempt=attempt)
    counts = {number: len(shown(archive, job, attempt=number)) for number in range(1, 5)}
    assert min(number for number, count in counts.items() if count) == first


def test_only_what_was_there_is_searched(archive: Archive) -> None:
    """What comes meanwhile is followed."""
    archive.driver_log.write_text("a\nb\nc\n")
    job = replace(RUNNING, log_position="1:4")
    assert selected(archive, job, Selection("."), 0, None) == ["a", "b"]


def test_lines_between_two_positions(archive: Archive) -> None:
    archive.driver_log.write_text("a\nb\n")
    archive.driver_log.rename(archive.driver_log.with_name("driver.log.1"))
    archive.driver_log.write_text("c\nd\nhalf")
    assert archive.log_end() == "2:4"
    for begin, lines in (("", "abcd"), ("1:2", "bcd"), ("2:0", "cd"), ("2:2", "d"), ("2:4", ""), ("2:99", "")):
        assert searched(archive, begin, "2:4") == ([*lines], begin == "")
    assert searched(archive, "", "1:2") == (["a"], True)


def measure(archive: Archive, moment: float, **addresses: str) -> None:
    nodes = {name.replace("_", "-"): Usage(address=address) for name, address in addresses.items()}
    hardware.append(archive, Measured(moment, nodes))


def test_lines_of_a_node_by_its_name(archive: Archive) -> None:
    archive.driver_log.write_text("(W pid=1, ip=10.0.0.2) a\n(W pid=2, ip=10.0.0.3) b\nc\n")
    with pytest.raises(SelectionError, match="gpu-2"):
        shown(archive, node="gpu-2")
    assert shown(archive, node="10.0.0.3") == ["(W pid=2, ip=10.0.0.3) b"]
    # Of the driver's node, Ray knows the address.
    assert shown(archive, replace(RUNNING, driver_node_ip="10.0.0.9"), node="10.0.0.9") == ["c"]
    measure(archive, 1.0, gpu_3="10.0.0.2", gpu_2="10.0.0.2", gpu_1="10.0.0.2")
    measure(archive, 2.0, gpu_2="10.0.0.3", gpu_1="10.0.0.2")
    # Its address is the latest one.
    assert shown(archive, node="gpu-2") == ["(W pid=2, ip=10.0.0.3) b"]
    assert shown(archive, node="gpu-1") == shown(archive, node="10.0.0.2") == ["(W pid=1, ip=10.0.0.2) a", "c"]
    # A node that is gone is in the beginning.
    for moment in range(3, 9):
        measure(archive, float(moment), **{f"gpu_1{number}": "10.0.0.2" for number in range(9000)})
    assert shown(archive, node="gpu-3") == ["(W pid=1, ip=10.0.0.2) a"]


def test_lines_that_are_not_older(archive: Archive) -> None:
    now = time.time()
    archive.driver_log.write_text("")
    for age, text in ((900, "a\n"), (300, "b\n"), (30, "c\n")):
        archive.append("logs/driver.log", text)
        measure(archive, now - age)
    for since, lines in ((600, "bc"), (120, "c"), (1, ""), (86_400, "abc")):
        assert shown(archive, since=float(since)) == [*lines]
    ended = replace(RUNNING, state="STOPPED", ended_at=now - 100)
    assert shown(archive, ended, since=60.0) == []
    assert shown(archive, ended, since=600.0) == ["b", "c"]


def test_measurements_that_do_not_tell_how_long_the_log_was(archive: Archive) -> None:
    archive.driver_log.write_text("a\n")
    for log in ("", "x", "1:" + "9" * 99):
        archive.write_text(hardware.FILE, f'{{"time": 1.0, "nodes": {{}}, "log": "{log}"}}\n')
        with pytest.raises(SelectionError, match="how long the log was"):
            shown(archive, since=60.0)


def test_an_attempt_and_a_time_choose_lines_of_the_whole_log(archive: Archive) -> None:
    for selection in (Selection(attempt=1), Selection(since=1.0)):
        with pytest.raises(SelectionError, match="position"):
            selected(archive, RUNNING, selection, 0, "1:0")
    # After a position, lines of the driver are of the last attempt as well.
    job = replace(RUNNING, attempt=2, log=("a", "ARGUS_VERL_ATTEMPT=2", "b"))
    assert selected(archive, job, Selection(node="gpu-1"), 0, "1:0") == ["ARGUS_VERL_ATTEMPT=2", "b"]
