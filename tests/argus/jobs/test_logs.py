from __future__ import annotations

import pytest

from argus.archive.archive import Archive
from argus.jobs.logs import first_errors, log_since, log_tail


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a\nb\nc", ["b", "c"]),
        ("a\n\n\n\nb\n\n\n", ["a", "b"]),
        # Of a progress bar, only its last state is shown, even if a step's line follows on the same line.
        ("x\n 10%|#\r 50%|##\r100%|###\nend\n", ["100%|###", "end"]),
        ("x\n 10%|#\r 50%|##\r", ["x", " 50%|##"]),
        ("x\n 50%|##\rstep:1 - train/loss:5.96\n", ["x", "step:1 - train/loss:5.96"]),
    ],
)
def test_the_tail_of_a_log(archive: Archive, text: str, lines: list[str]) -> None:
    archive.driver_log.write_bytes(text.encode())
    assert log_tail(archive, 2) == (lines, f"1:{len(text)}")


def rename(archive: Archive, number: int) -> None:
    """As the launcher does with a full part."""
    archive.driver_log.rename(archive.driver_log.with_name(f"driver.log.{number}"))
    archive.driver_log.touch()


def test_a_position_stays_valid_after_renaming(archive: Archive) -> None:
    assert log_since(archive, "") == ([], "")
    archive.append("logs/driver.log", "a\nb, begun")
    lines, position = log_since(archive, "")
    rename(archive, 1)
    archive.append("logs/driver.log", " and ended\nc\n")
    assert (lines, position) == (["a"], "1:2")
    assert log_since(archive, position) == (["b, begun and ended", "c"], "2:13")
    rename(archive, 2)
    rename(archive, 3)
    archive.append("logs/driver.log", "d\n")
    assert log_since(archive, "2:13") == (["d"], "4:2")
    # The launcher removes old parts, but not the first one.
    (archive.path / "logs" / "driver.log.2").unlink()
    assert [log_since(archive, at) for at in ("2:11", "")] == [(["d"], "4:2"), (["a", "b, begund"], "4:2")]


def test_a_long_log_is_read_in_pieces(archive: Archive) -> None:
    archive.append("logs/driver.log", "first\nsecond\n")
    rename(archive, 1)
    archive.append("logs/driver.log", "third\n" + "x" * 40 + "\nlast\n")
    position, pieces = "", []
    for _piece in range(6):
        lines, position = log_since(archive, position, max_bytes=16)
        pieces.append(lines)
    assert pieces == [["first", "second"], ["third"], ["x" * 16], ["x" * 16], ["x" * 8, "last"], []]


FAILED = """\
(WorkerDict pid=11, ip=10.0.0.2) loading
\x1b[36m(WorkerDict pid=11, ip=10.0.0.2)\x1b[0m Traceback (most recent call last):
(WorkerDict pid=12) Traceback (most recent call last):
(WorkerDict pid=11, ip=10.0.0.2)   File "a.py", line 1, in f
(WorkerDict pid=11, ip=10.0.0.2)   File "/private/user/code/r.py", line 3, in g
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
        # The frames of users' code come first.
        '    File "/private/user/code/r.py", line 3, in g',
        '    File "a.py", line 1, in f',
        "  KeyError: 'first'",
        "WorkerDict pid=12:",
        "  torch.distributed.DistBackendError: NCCL error",
        "Other pid=13:",
        "  RuntimeError: without a traceback",
        "the driver:",
        "  KeyError: 'first'",
    ]
