"""Calls on the file system."""

from __future__ import annotations

import threading
import time

import pytest

from argus.staging.files import THREADS, parallel_map


def test_threads_help_where_calls_are_slow_and_any_error_is_raised() -> None:
    def slow(number: int) -> tuple[int, int]:
        time.sleep(0.01)
        return number, threading.get_ident()

    numbers, threads = zip(*parallel_map(slow, range(40)), strict=True)
    assert numbers == tuple(range(40))
    assert len(set(threads)) == THREADS
    for broken in (0, 39):

        def fails(number: int, broken: int = broken) -> None:
            slow(number)
            if number == broken:
                raise OSError(number)

        with pytest.raises(OSError):
            parallel_map(fails, range(40))
    assert parallel_map(slow, []) == []
