"""Errors of the hub: which are transient, and what is shown of them."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest

from argus.staging.hub.errors import (
    describe,
    is_file_system_error,
    is_transient,
    without_token,
)


class HttpError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.response = SimpleNamespace(status_code=status)


class OfflineModeIsEnabled(ConnectionError):  # noqa: N818 - the library's own name
    pass


@pytest.mark.parametrize(
    ("error", "transient"),
    [
        (HttpError(503), True),
        (HttpError(429), True),
        (HttpError(404), False),
        (ConnectionError("reset"), True),
        (TimeoutError(), True),
        (OfflineModeIsEnabled(), False),
        (OSError("Consistency check failed: file should be of size 4"), True),
        (ValueError("other"), False),
    ],
)
def test_transient_errors(error: Exception, transient: bool) -> None:
    assert is_transient(error) == transient
    outer = RuntimeError("the library failed")
    outer.__cause__ = error
    assert is_transient(outer) == transient


def test_errors_of_the_file_system_are_not_those_of_a_socket() -> None:
    assert is_file_system_error(OSError(errno.ENOSPC, "full"))
    assert not is_file_system_error(ConnectionResetError(errno.ECONNRESET, "reset"))
    assert not is_file_system_error(TimeoutError(errno.ETIMEDOUT, "timed out"))
    assert not is_file_system_error(OSError("without a number"))
    assert not is_file_system_error(ValueError())


def test_the_token_is_removed_from_texts_of_others() -> None:
    assert without_token("hf_secret at https://host/x", "hf_secret\n") == "… at https://host/x"
    assert without_token("nothing", None) == "nothing"


def test_a_description_is_one_line_of_limited_length() -> None:
    assert describe(ValueError("a\n b.")) == "ValueError: a b"
    assert describe(TimeoutError()) == "TimeoutError"
    assert len(describe(ValueError("x" * 1000))) == len("ValueError: ") + 300
