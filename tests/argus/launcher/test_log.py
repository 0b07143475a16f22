"""The driver's log in its parts."""

from __future__ import annotations

import errno
from collections.abc import Iterable

import pytest
from fake_ray import FakeClock

from argus.archive import failures
from argus.archive.archive import Archive
from argus.launcher import driver_log
from argus.launcher.log_scan import total_steps


def write(archive: Archive, numbers: Iterable[int]) -> None:
    """One line of five bytes in each part."""
    made = driver_log.DriverLog(archive.driver_log, part_bytes=5)
    for number in numbers:
        made.write(f"{number:04}\n".encode())


@pytest.mark.parametrize("lines", [1, 16, 17, 40])
def test_the_first_part_and_the_newest_are_kept(archive: Archive, lines: int) -> None:
    # A later attempt appends to the log.
    for numbers in (range(1, lines // 2 + 1), range(lines // 2 + 1, lines + 1)):
        write(archive, numbers)
    kept = [int(path.read_text()) for path in archive.log_parts().values()]
    assert kept == [1, *range(max(2, lines - driver_log.MAX_PARTS + 1), lines + 1)]


def test_the_end_of_the_log_reaches_over_its_parts(archive: Archive) -> None:
    assert archive.log_tail(100) == ""
    write(archive, (1, 2, 3))
    assert archive.log_tail(7) == "2\n0003\n"
    assert archive.log_tail(12) == "1\n0002\n0003\n"
    assert archive.log_tail(15) == archive.log_tail(100) == "0001\n0002\n0003\n"


class Disk:
    """A file on a disk with a little space."""

    def __init__(self, space: int) -> None:
        self.space = space
        self.content = b""

    def tell(self) -> int:
        return len(self.content)

    def write(self, data: bytes) -> int:
        if not self.space:
            raise OSError(28, "No space left on device")
        written = data[: self.space]
        self.content += written
        self.space -= len(written)
        return len(written)


def test_a_disk_that_takes_a_part_gets_the_rest_later(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_log, "TAIL_BYTES", 10)
    made, disk = driver_log.DriverLog(archive.driver_log), Disk(3)
    made.file.close()
    made.file = disk  # type: ignore[assignment]
    made.write(b"0123456")
    assert (disk.content, made.flush_pending()) == (b"012", 4)
    # What left the memory before it was written is lost.
    made.write(b"789abcd")
    assert (made.flush_pending(), made.tail_text()) == (11, "456789abcd")
    disk.space = 100
    assert made.flush_pending() == 0
    made.write(b"e")
    assert disk.content == b"012\n[1 bytes of the log were lost: No space left on device]\n456789abcde"


def test_the_number_of_steps_is_read_from_the_first_part(archive: Archive) -> None:
    assert total_steps(archive) is None
    made = driver_log.DriverLog(archive.driver_log, part_bytes=30)
    made.write(b"Total training steps: 435\n")
    made.write(b"Total training steps: 7, said by a model\n")
    assert len(archive.log_parts().values()) == 2
    assert total_steps(archive) == 435


@pytest.mark.parametrize(
    ("stopped_at", "until"), [(1e9, driver_log.RECORD_TIMEOUT_SECONDS), (9, 9 + driver_log.STOP_RECORD_TIMEOUT_SECONDS)]
)
def test_it_is_tried_again_for_minutes_and_after_a_stop_for_seconds(stopped_at: float, until: float) -> None:
    clock, tried = FakeClock(), [0.0]

    def full() -> None:
        tried.append(clock.now)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        driver_log.retry_write(full, lambda: clock.now >= stopped_at, clock)
    assert until <= tried[-1] <= until + driver_log.RETRY_INTERVAL_SECONDS


def test_a_failure_is_told_in_rays_log() -> None:
    failure = failures.Failure(failures.FailureKind.GPU_OOM, "GPU 0 ran out of memory", ("a line…",), "Use more.")
    line = driver_log.format_end_line(failure)
    assert driver_log.parse_end_line(f"the last lines:\nstep:1\n{line}\n") == failure
    for message in ("", f"{driver_log.END_PREFIX}{'[' * 100_000}", f'{driver_log.END_PREFIX}{{"kind": 7}}', f"x{line}"):
        assert driver_log.parse_end_line(message) is None
    assert driver_log.parse_end_line(line + "\nx" * driver_log.MAX_MESSAGE_LINES) is None
