from __future__ import annotations

import time

import pytest

from argus.archive.archive import Archive
from argus.jobs.logs import first_errors, log_since, log_tail, shown_lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a\nb\nc\n", ["b", "c"]),
        ("a\nb\nc", ["b", "c"]),
        ("a", ["a"]),
        ("a\n\n\n\nb\n\n\n", ["a", "b"]),
        # Of a progress bar, only its last state is shown, even if a step's line follows on the same line.
        ("x\n 10%|#\r 50%|##\r100%|###\nend\n", ["100%|###", "end"]),
        ("x\n 10%|#\r 50%|##\r", ["x", " 50%|##"]),
        ("x\n 50%|##\rstep:1 - train/loss:5.96\n", ["x", "step:1 - train/loss:5.96"]),
        ("a\r\nb\r\n", ["a", "b"]),
        ("a\n\r\n\r\nb\n", ["a", "b"]),
    ],
)
def test_the_tail_of_a_log(archive: Archive, text: str, lines: list[str]) -> None:
    archive.driver_log.write_bytes(text.encode())
    assert log_tail(archive, 2) == (lines, f"1:{len(text)}")


def test_the_tail_of_a_huge_log_does_not_read_all_of_it(archive: Archive) -> None:
    with archive.driver_log.open("wb") as log:
        log.truncate(1 << 30)
        log.seek(0, 2)
        log.write("\nfirst ü\n \x1b[36mlast\x1b[0m\n".encode())
    started = time.monotonic()
    assert log_tail(archive, 2)[0] == ["first ü", " \x1b[36mlast\x1b[0m"]
    assert time.monotonic() - started < 20


def rename(archive: Archive, number: int) -> None:
    """As the launcher does with a full part."""
    archive.driver_log.rename(archive.driver_log.with_name(f"driver.log.{number}"))
    archive.driver_log.touch()


def append(archive: Archive, text: str) -> None:
    with archive.driver_log.open("a") as log:
        log.write(text)


def test_reading_from_a_position(archive: Archive) -> None:
    assert log_since(archive, "") == ([], "")
    append(archive, "a\nb\nhalf")
    assert log_since(archive, "") == (["a", "b"], "1:4")
    assert log_since(archive, "1:2") == (["b"], "1:4")
    assert log_since(archive, "1:4") == ([], "1:4")
    append(archive, " a line\n")
    assert log_since(archive, "1:4") == (["half a line"], "1:16")


def test_a_position_stays_valid_after_renaming(archive: Archive) -> None:
    append(archive, "a\nb, begun")
    lines, position = log_since(archive, "")
    rename(archive, 1)
    append(archive, " and ended\nc\n")
    assert (lines, position) == (["a"], "1:2")
    assert log_since(archive, position) == (["b, begun and ended", "c"], "2:13")
    rename(archive, 2)
    rename(archive, 3)
    append(archive, "d\n")
    assert log_since(archive, "2:13") == (["d"], "4:2")
    # The launcher removes old parts, but not the first one.
    (archive.path / "logs" / "driver.log.2").unlink()
    assert log_since(archive, "2:11") == (["d"], "4:2")
    assert log_since(archive, "") == (["a", "b, begund"], "4:2")


def test_a_long_log_is_read_in_pieces(archive: Archive) -> None:
    append(archive, "first\nsecond\n")
    rename(archive, 1)
    append(archive, "third\n" + "x" * 40 + "\nlast\n")
    position, pieces = "", []
    while True:
        lines, after = log_since(archive, position, size=16)
        if after == position:
            break
        pieces.append(lines)
        position = after
    assert pieces == [["first", "second"], ["third"], ["x" * 16], ["x" * 16], ["x" * 8, "last"]]


FAILED = """\
(WorkerDict pid=11, ip=10.0.0.2) loading
\x1b[36m(WorkerDict pid=11, ip=10.0.0.2)\x1b[0m Traceback (most recent call last):
(WorkerDict pid=12) Traceback (most recent call last):
(WorkerDict pid=11, ip=10.0.0.2)   File "a.py", line 1, in f
(WorkerDict pid=12)   File "b.py", line 2, in g
(WorkerDict pid=11, ip=10.0.0.2) KeyError: 'first'
(WorkerDict pid=12) torch.distributed.DistBackendError: NCCL error
(WorkerDict pid=11, ip=10.0.0.2) ValueError: another one
(Other pid=13) RuntimeError: without a traceback
Traceback (most recent call last):
  File "main.py", line 3, in <module>
ray.exceptions.RayTaskError(KeyError): ray::f() (pid=11, ip=10.0.0.2)
  File "a.py", line 1, in f
KeyError: 'first'
end
"""


def test_the_first_error_of_each_process_in_the_order_of_their_begin(archive: Archive) -> None:
    archive.driver_log.write_text(FAILED)
    assert first_errors(log_tail(archive, None).lines) == [
        "WorkerDict pid=11, ip=10.0.0.2:",
        '    File "a.py", line 1, in f',
        "  KeyError: 'first'",
        "WorkerDict pid=12:",
        "  torch.distributed.DistBackendError: NCCL error",
        "Other pid=13:",
        "  RuntimeError: without a traceback",
        "the driver:",
        "  KeyError: 'first'",
    ]


def test_the_frames_of_user_code_come_first() -> None:
    lib, own = (
        '  File "/opt/venv/verl/naive.py", line 7, in run\n    call()',
        '  File "/private/user/code/r.py", line 3, in f\n    x',
    )
    errors = first_errors(f"Traceback (most recent call last):\n{lib}\n{own}\n{lib}\nKeyError: 'x'".split("\n"))
    assert [line.strip()[:25] for line in errors[1:3]] == ['File "/private/user/code/', "x"]
    assert errors[-1] == "  KeyError: 'x'"


def test_a_progress_bar_keeps_its_process() -> None:
    bar = (
        "\x1b[36m(WorkerDict pid=7, ip=10.0.0.3)\x1b[0m \r 10%|#\r 90%|####\r\n(run_node pid=3) (rank2 pid=8) 1%\r2%\n"
    )
    assert shown_lines(bar.encode()) == [
        "\x1b[36m(WorkerDict pid=7, ip=10.0.0.3)\x1b[0m  90%|####",
        "(run_node pid=3) (rank2 pid=8) 2%",
    ]
    assert shown_lines(b"(a pid=1) x\r(b pid=2) y\n") == ["(b pid=2) y"]
