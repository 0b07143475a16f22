"""The driver's log in its parts."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus.archive.archive import Archive
from argus.launcher import log
from argus.launcher.log import Log, total_steps


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "sft-1")
    made.reserve()
    return made


def parts(archive: Archive) -> dict[str, str]:
    return {path.name: path.read_text() for path in archive.log_parts().values()}


def fill(archive: Archive, lines: int) -> Log:
    """One line of five bytes in each part."""
    made = Log(archive.driver_log, part_bytes=5)
    for number in range(1, lines + 1):
        made.write(f"{number:04}\n".encode())
    return made


def test_a_full_part_is_rotated(archive: Archive) -> None:
    made = Log(archive.driver_log, part_bytes=10)
    for line in (b"one\n", b"two\n", b"three\n", b"more than a part holds\n", b"four\n"):
        made.write(line)
    # A write is never cut in two.
    assert parts(archive) == {
        "driver.log.1": "one\ntwo\n",
        "driver.log.2": "three\n",
        "driver.log.3": "more than a part holds\n",
        "driver.log": "four\n",
    }


def test_the_next_attempt_appends_to_the_log(archive: Archive) -> None:
    fill(archive, 3)
    fill(archive, 1)
    assert list(parts(archive)) == ["driver.log.1", "driver.log.2", "driver.log.3", "driver.log"]


@pytest.mark.parametrize("lines", [1, 5, 9, 12, 16, 17, 18, 40])
def test_the_first_part_and_the_newest_are_kept(archive: Archive, lines: int) -> None:
    fill(archive, lines)
    kept = [int(text) for text in parts(archive).values()]
    newest = range(max(2, lines - log.PARTS + 1), lines + 1)
    assert kept == [1, *newest]
    assert len(kept) <= log.PARTS + 1


def test_the_end_of_the_log_reaches_over_its_parts(archive: Archive) -> None:
    assert archive.log_tail(100) == ""
    fill(archive, 3)
    assert archive.log_tail(5) == "0003\n"
    assert archive.log_tail(7) == "2\n0003\n"
    assert archive.log_tail(12) == "1\n0002\n0003\n"
    assert archive.log_tail(15) == archive.log_tail(100) == "0001\n0002\n0003\n"


def test_a_rotation_that_fails_does_not_end_the_log(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    made = fill(archive, 1)
    opened = Path.open

    def full(path: Path, *arguments: object, **options: object) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    made.write(b"0002\n")
    assert made.catch_up() == 5
    assert made.problem == "No space left on device"
    monkeypatch.setattr(Path, "open", opened)
    made.write(b"0003\n")
    # What could not be written before comes first.
    assert parts(archive) == {"driver.log.1": "0001\n", "driver.log": "0002\n0003\n"}
    assert made.catch_up() == 0


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


def on_disk(archive: Archive, space: int, monkeypatch: pytest.MonkeyPatch) -> tuple[log.Log, Disk]:
    """A log that keeps 10 bytes in memory, on a disk with that much space."""
    monkeypatch.setattr(log, "END_BYTES", 10)
    made, disk = log.Log(archive.driver_log), Disk(space)
    made.file.close()
    made.file = disk  # type: ignore[assignment]
    return made, disk


def test_a_disk_that_takes_a_part_gets_the_rest_later(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    made, disk = on_disk(archive, 3, monkeypatch)
    made.write(b"0123456")
    assert (disk.content, made.catch_up()) == (b"012", 4)
    made.write(b"789abc")
    assert (made.catch_up(), made.text()) == (10, "3456789abc")
    disk.space = 100
    assert made.catch_up() == 0
    assert disk.content == b"0123456789abc"


def test_what_left_the_memory_before_it_was_written_is_lost(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    made, disk = on_disk(archive, 3, monkeypatch)
    made.write(b"0123456")
    made.write(b"789abcd")
    disk.space = 100
    assert made.catch_up() == 0
    assert disk.content == b"012\n[1 bytes of the log were lost: No space left on device]\n456789abcd"
    made.write(b"e")
    assert disk.content.endswith(b"abcde")


@pytest.mark.parametrize(
    ("text", "total"),
    [
        ("Total training steps: 435\n", 435),
        ("(TaskRunner pid=7) Total training steps: 435\nstep:1\n", 435),
        ("Total steps: 12, num_warmup_steps: 0\n", 12),
        ("total steps: 3\ntotal steps: 4\n", 3),
        ("nothing of it\n", None),
        ("", None),
    ],
)
def test_the_total_number_of_steps(archive: Archive, text: str, total: int | None) -> None:
    archive.driver_log.write_text(text)
    assert total_steps(archive) == total


def test_the_number_of_steps_is_read_from_the_first_part(archive: Archive) -> None:
    assert total_steps(archive) is None
    made = Log(archive.driver_log, part_bytes=30)
    made.write(b"Total training steps: 435\n")
    made.write(b"Total training steps: 7, said by a model\n")
    assert len(archive.log_parts().values()) == 2
    assert total_steps(archive) == 435
