"""A real launcher on a shared root of its own that cannot be written when its trainer ends."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from launcher_job import Setup

from argus.launcher import log
from argus.launcher.log import END_BYTES
from argus.queue.attempts import close

MIB = 1 << 20
LOST = re.compile(r"\n\[(\d+) bytes of the log were lost: No space left on device\]\n")
TOOLS = ("mkfs.ext4", "mount", "umount", "fsfreeze")


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A file system of 32 MiB."""
    if os.geteuid() or not all(map(shutil.which, TOOLS)):
        pytest.skip(f"needs root and {', '.join(TOOLS)}")
    image, mounted = tmp_path / "image", tmp_path / "root"
    with image.open("wb") as file:
        file.truncate(32 * MIB)
    mounted.mkdir()
    run("mkfs.ext4", "-q", "-m", "0", image)
    if subprocess.run(["mount", "-o", "loop", image, mounted], check=False, capture_output=True).returncode:
        pytest.skip("this machine mounts no loop devices")
    try:
        yield mounted
    finally:
        subprocess.run(["fsfreeze", "--unfreeze", mounted], check=False, capture_output=True)
        run("umount", mounted)


class Unwritable(Setup):
    """A job whose trainer prints and fails when it is told to."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.go = root.parent / "go"
        self.outputs: list[bytes] = []
        self.change("PAUSE_SECONDS", 0.1, "log")

    def begin(self, lines: int = 10) -> subprocess.Popen[bytes]:
        process = self.start("waits", GO=str(self.go), LINES=str(lines))
        # Its output is more than a pipe holds.
        self.reader = threading.Thread(target=lambda: self.outputs.extend(process.communicate()))
        self.reader.start()
        wait_for(lambda: "pids" in self.log())
        return process

    def end(self, seconds: float = 30) -> tuple[int | None, str]:
        """The exit code of the launcher, and what it wrote to Ray's log."""
        self.reader.join(seconds)
        assert not self.reader.is_alive()
        output, errors = self.outputs
        assert errors == b""
        return self.started[0].returncode, output.decode()

    def fail(self) -> None:
        """Let the trainer fail, and wait until it is gone."""
        (pid,) = (line.split()[1] for line in self.log().splitlines() if line.startswith("pids"))
        self.go.touch()
        wait_for(lambda: not Path(f"/proc/{pid}").exists())

    def lines(self) -> list[str]:
        return [line[:5] for line in self.log().splitlines() if line.endswith("x" * 94)]

    def assert_failed_as_it_did(self) -> None:
        status = self.archive.status_json()
        assert (status["state"], status["exit_code"], status["failure"]["kind"]) == ("FAILED", 3, "config")
        assert status["reason"] == "batch_size should be a positive integer value, but got 0"


def wait_for(condition: Callable[[], Any], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.02)


@pytest.fixture
def job(root: Path) -> Iterator[Unwritable]:
    made = Unwritable(root)
    yield made
    made.go.touch()
    for process in made.started:
        process.terminate()
        made.end()


def fill(root: Path) -> Path:
    """Take all space of a file system."""
    filler = root / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (MIB, 1024, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    return filler


def test_the_end_is_recorded_when_there_is_space_again(job: Unwritable, root: Path) -> None:
    process = job.begin()
    filler = fill(root)
    job.fail()
    time.sleep(0.5)
    assert process.poll() is None
    assert job.archive.status_json()["state"] == "RUNNING"
    filler.unlink()
    code, output = job.end()
    assert code == 3
    job.assert_failed_as_it_did()
    # What was written while there was no space.
    assert job.log() == output
    assert job.lines() == [f"{number:05}" for number in range(10)]
    assert job.has_ended()
    # What the full disk left is removed.
    close(job.archive, str(job.archive.state()))
    assert list(job.archive.path.rglob(".*")) == []


def test_of_a_long_log_what_was_lost_is_said(job: Unwritable, root: Path) -> None:
    job.begin(lines=30_000)
    filler = fill(root)
    job.fail()
    filler.unlink()
    _code, output = job.end()
    job.assert_failed_as_it_did()
    # Also a disk that is full takes a little now and then.
    written, *others = LOST.split(job.log())
    at = len(written)
    assert output.startswith(written)
    assert others
    for lost, after in zip(others[::2], others[1::2], strict=True):
        assert output[at + int(lost) :].startswith(after)
        at += int(lost) + len(after)
    assert at == len(output)
    assert len(others[-1]) >= END_BYTES
    assert job.lines()[-1] == "29999"


def test_an_archive_that_stays_unwritable_does_not_hide_the_failure(job: Unwritable, root: Path) -> None:
    job.change("RECORD_SECONDS", 1, "log")
    job.begin()
    # As after an error of the disk: read-only for good.
    run("mount", "-o", "remount,abort", root)
    job.fail()
    code, text = job.end()
    assert code == 3
    assert job.archive.status_json()["state"] == "RUNNING"
    assert "The archive cannot be written: [Errno 30] Read-only file system" in text
    told = log.end_from(text)
    assert told
    assert (told.kind, told.reason) == ("config", "batch_size should be a positive integer value, but got 0")


def test_a_stop_ends_a_launcher_that_cannot_write(job: Unwritable, root: Path) -> None:
    process = job.begin()
    fill(root)
    job.fail()
    time.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    # Ray would kill it after 30 s.
    code, output = job.end(20)
    assert code == 3
    told = log.end_from(output)
    assert told
    assert told.kind == "config"


def test_a_frozen_root_delays_the_end_only(job: Unwritable, root: Path) -> None:
    process = job.begin()
    run("fsfreeze", "--freeze", root)
    try:
        job.fail()
        time.sleep(0.5)
        assert process.poll() is None
    finally:
        run("fsfreeze", "--unfreeze", root)
    code, output = job.end()
    assert code == 3
    job.assert_failed_as_it_did()
    assert job.log() == output
