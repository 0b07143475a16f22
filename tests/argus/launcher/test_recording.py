"""The end of an attempt, recorded on a shared root that cannot be written for a while."""

from __future__ import annotations

import errno

import pytest
from steward_scene import Clock

from argus.archive import failures
from argus.io.reading import UnreadableError
from argus.launcher import log
from argus.launcher.log import PAUSE_SECONDS, RECORD_SECONDS, STOPPED_SECONDS, retried

FULL = OSError(errno.ENOSPC, "No space left on device")


class Work:
    """Work that fails until a time."""

    def __init__(self, until: float, error: Exception = FULL) -> None:
        self.clock, self.error = Clock(), error
        self.until = self.clock.now + until
        self.tried: list[float] = []
        self.started = self.clock.now
        self.stopped_at = float("inf")

    def __call__(self) -> str:
        self.tried.append(self.clock.now - self.started)
        if self.clock.now < self.until:
            raise self.error
        return "done"

    def run(self) -> str:
        return retried(self, lambda: self.clock.now - self.started >= self.stopped_at, self.clock)


def transient() -> UnreadableError:
    error = UnreadableError("status.json", "cannot be read")
    error.__cause__ = OSError(errno.ESTALE, "Stale file handle")
    return error


@pytest.mark.parametrize("error", [FULL, OSError(errno.EROFS, "Read-only file system"), transient()])
def test_it_is_tried_again(error: Exception) -> None:
    work = Work(100, error)
    assert work.run() == "done"
    assert work.tried[-1] == pytest.approx(100, abs=PAUSE_SECONDS)


def test_after_minutes_it_is_given_up() -> None:
    work = Work(float("inf"))
    with pytest.raises(OSError, match="No space left"):
        work.run()
    assert RECORD_SECONDS <= work.tried[-1] <= RECORD_SECONDS + PAUSE_SECONDS


def test_what_stays_unreadable_is_not_waited_for() -> None:
    work = Work(100, UnreadableError("status.json", "is not JSON"))
    with pytest.raises(UnreadableError):
        work.run()
    assert work.tried == [0]


@pytest.mark.parametrize("stopped_at", [0.0, 40.0])
def test_a_stop_ends_it_within_seconds(stopped_at: float) -> None:
    work = Work(float("inf"))
    work.stopped_at = stopped_at
    with pytest.raises(OSError, match="No space left"):
        work.run()
    assert stopped_at + STOPPED_SECONDS <= work.tried[-1] <= stopped_at + STOPPED_SECONDS + 1


def test_a_failure_is_told_in_rays_log() -> None:
    failure = failures.Failure(failures.FailureKind.GPU_OOM, "GPU 0 ran out of memory", ("a line…",), "Use more.")
    line = log.end_line(failure)
    assert log.end_from(f"the last lines:\nstep:1\n{line}\n") == failure
    assert log.end_from(f"{line}\n{'x' * 5}\n") == failure


@pytest.mark.parametrize(
    "message",
    [
        "",
        log.end_line(None),
        log.NOT_RECORDED,
        f"{log.NOT_RECORDED}{'[' * 100_000}",
        f'{log.NOT_RECORDED}{{"kind": 7}}',
        f"x{log.end_line(failures.failure('data', 'no rows'))}",
        log.end_line(failures.failure("data", "no rows")) + "\nx" * log.MESSAGE_LINES,
    ],
)
def test_without_one_nothing_is_told(message: str) -> None:
    assert log.end_from(message) is None
