"""Rigs that tests share. Where one cannot run, its tests are skipped with the reason."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest
from rigs.nfs_guest import Guest, NoGuestError


@pytest.fixture(scope="session")
def nfs() -> Iterator[Guest]:
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode:
        pytest.skip("no container engine answers")
    try:
        guest = Guest.start()
    except NoGuestError as error:
        pytest.skip(str(error))
    try:
        yield guest
    finally:
        guest.stop()
