"""Calls on the file system."""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path

import pytest

from argus.staging.files import CALLS, parallel_map, sync


def test_threads_help_where_calls_are_slow_and_any_error_is_raised() -> None:
    def slow(number: int) -> tuple[int, int]:
        time.sleep(0.01)
        return number, threading.get_ident()

    numbers, threads = zip(*parallel_map(slow, range(40)), strict=True)
    assert numbers == tuple(range(40))
    assert len(set(threads)) == CALLS
    for broken in (0, 39):

        def fails(number: int, broken: int = broken) -> None:
            slow(number)
            if number == broken:
                raise OSError(number)

        with pytest.raises(OSError):
            parallel_map(fails, range(40))
    assert parallel_map(slow, []) == []


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP, errno.EIO])
def test_only_an_unsupported_sync_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def fsync(descriptor: int) -> None:
        raise OSError(code, "no")

    monkeypatch.setattr(os, "fsync", fsync)
    if code == errno.EIO:
        with pytest.raises(OSError, match="no"):
            sync(tmp_path)
    else:
        sync(tmp_path)
