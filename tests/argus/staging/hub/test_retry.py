"""Repeated requests to the hub, with a clock of the test."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace

import pytest

from argus.staging.errors import StagingError
from argus.staging.hub.location import Location
from argus.staging.hub.retry import with_retries

ERRORS = SimpleNamespace(GatedRepoError=KeyError, RepositoryNotFoundError=KeyError, RevisionNotFoundError=KeyError)
LIBRARY = SimpleNamespace(errors=ERRORS)
WAITS = (1.0, 5.0)


class Call:
    """A call that raises these errors, one after the other, and then succeeds."""

    def __init__(self, *errors: Exception, advances: bool = False) -> None:
        self.errors = list(errors)
        self.advances = advances
        self.bytes = 0
        self.slept: list[float] = []

    def __call__(self) -> str:
        if self.errors:
            self.bytes += self.advances
            raise self.errors.pop(0)
        return "content"

    def run(self) -> str:
        location = Location("org/name", "main", Path("/hub"))
        return with_retries(location, LIBRARY, self, WAITS, lambda: self.bytes, self.slept.append)


def test_transient_errors_are_repeated_with_growing_pauses() -> None:
    call = Call(ConnectionError(), TimeoutError())
    assert call.run() == "content"
    assert call.slept == [1.0, 5.0]


def test_after_the_last_pause_the_error_is_explained() -> None:
    call = Call(*[ConnectionError("reset")] * 3)
    with pytest.raises(StagingError, match=r"org/name on https://huggingface\.co: cannot be downloaded: .*reset"):
        call.run()
    assert call.slept == [1.0, 5.0]


def test_as_long_as_a_download_advances_all_tries_are_available_again() -> None:
    call = Call(*[ConnectionError()] * 5, advances=True)
    assert call.run() == "content"
    assert call.slept == [1.0] * 5


def test_other_errors_are_not_repeated() -> None:
    for error, raised in (
        (ValueError("no"), StagingError),
        (OSError(errno.ENOSPC, "full"), OSError),
        (StagingError("a", "b", "c"), StagingError),
    ):
        call = Call(error)
        with pytest.raises(raised):
            call.run()
        assert call.slept == []
