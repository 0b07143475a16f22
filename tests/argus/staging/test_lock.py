"""The lock of a target, and the progress of its holder."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import pytest
from staging_store import build_of, no_build, process, siblings, stage, until

from argus.staging import lock as staging_lock
from argus.staging.files import THREAD_COUNT
from argus.staging.lock import Progress, hold_lock, is_held, lock_file, read_progress
from argus.staging.manifest import Status
from argus.staging.options import StagingError


def test_a_lock_is_held_until_its_holder_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "tiny"

    def hold() -> None:
        with hold_lock(target):
            (tmp_path / "held").touch()
            time.sleep(60)

    assert not is_held(target)
    with process(hold) as holder:
        until((tmp_path / "held").exists)
        assert is_held(target)
        with monkeypatch.context() as patched:
            patched.setattr(staging_lock, "HEARTBEAT_TIMEOUT_SECONDS", 0.3)
            message = rf"tiny: is being staged by {socket.gethostname()}, process {holder.pid}, which has sent no"
            with pytest.raises(StagingError, match=message):
                stage(build_of(target, no_build))
        holder.kill()
        holder.join()
    assert lock_file(target).exists() and not is_held(target)
    assert stage(build_of(target)).status == Status.STAGED
    assert siblings(target) == ["held", "tiny"]


def test_a_lock_that_its_holder_removes_at_that_moment_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, real = tmp_path / "tiny", fcntl.flock
    locks = []

    def flock(lock: IO[str], how: int) -> None:
        """As if the holder ended after the waiting process opened the file and before it locks it."""
        if not locks:
            lock_file(target).unlink()
        locks.append(lock)
        real(lock, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with hold_lock(target):
        assert len(locks) == 2
        # The file that others see is the locked one.
        with lock_file(target).open() as other, pytest.raises(BlockingIOError):
            real(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert siblings(target) == []


def test_progress_is_written_as_long_as_its_holder_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("argus.staging.lock.PROGRESS_INTERVAL_SECONDS", 0.01)
    file = tmp_path / "progress"
    file.touch()
    with file.open("r+") as lock:
        progress = Progress(lock.fileno())
        with progress.write_heartbeats():
            progress.begin("copying", 10**6)
            with ThreadPoolExecutor(THREAD_COUNT) as pool:
                list(pool.map(progress.add, [1] * 1000))
            until(lambda: json.loads(file.read_text() or "{}").get("done") == 1000)
            before = json.loads(file.read_text())["time"]
            # Also while there is nothing to count.
            until(lambda: json.loads(file.read_text() or "{}").get("time", 0) > before)
            # What comes next is shorter.
            progress.begin("x")
            assert json.loads(file.read_text())["done"] == 0


def test_an_error_other_than_a_held_lock_is_raised_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as ENOLCK of a file system without locks, which waiting does not cure."""
    tries = []

    def flock(lock: IO[str], operation: int) -> None:
        tries.append(operation)
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(StagingError, match=r"tiny: cannot be staged: .*No locks available.* has space and locks"):
        stage(build_of(tmp_path / "tiny", no_build))
    assert len(tries) == 1


@pytest.mark.parametrize("call", ["open", "fstat"])
def test_a_lock_that_another_machine_removes_while_it_is_opened_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """NFS says so at any use of the file."""
    real, tries = getattr(os, call), []

    def stale(file: str | int | Path, *arguments: Any) -> Any:
        path = Path(f"/proc/self/fd/{file}").readlink() if isinstance(file, int) else Path(file)
        if path == lock_file(tmp_path / "tiny"):
            tries.append(file)
            if len(tries) == 1:
                raise OSError(errno.ESTALE, "Stale file handle")
        return real(file, *arguments)

    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    with monkeypatch.context() as patched:
        patched.setattr(os, call, stale)
        patched.setattr(staging_lock, "LOCK_RETRY_INTERVAL_SECONDS", 0.01)
        with hold_lock(tmp_path / "tiny"):
            assert len(tries) > 1
    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors


REPORT = {"host": "head", "pid": 17, "step": "copying", "done": 1, "total": 2, "started_at": 1.0, "time": 2.0}


def test_a_report_that_a_job_has_forged_is_none(tmp_path: Path) -> None:
    forged = [("done", "1"), ("done", -1), ("done", True), ("done", 1 << 70), ("time", float("nan"))]
    forged += [("time", float("inf")), ("started_at", "now"), ("pid", [1]), ("pid", 1.5), ("step", "\x1b[2J")]
    forged += [("host", "\u202ehead"), ("host", "h" * 5000), ("step", "x" * (1 << 20))]
    lock_file(tmp_path / "tiny").write_text(json.dumps(REPORT))
    assert read_progress(tmp_path / "tiny") is not None
    for text in ("[" * 60_000, '{"pid": ' + "9" * 5000 + "}", *(json.dumps({**REPORT, key: it}) for key, it in forged)):
        lock_file(tmp_path / "tiny").write_text(text)
        assert read_progress(tmp_path / "tiny") is None, text[:99]
    assert stage(build_of(tmp_path / "tiny")).status == Status.STAGED
