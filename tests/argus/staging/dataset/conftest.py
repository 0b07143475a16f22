"""Fixtures for the tests in this directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hub import Hub


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    directory = tmp_path / "raw"
    directory.mkdir()
    return directory


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "private"
    directory.mkdir()
    return directory


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as hub:
        yield hub
