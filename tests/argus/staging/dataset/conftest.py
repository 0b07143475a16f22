"""Fixtures for the tests in this directory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from hub import Hub
from staging_datasets import Letters


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


@pytest.fixture
def model(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a model that is not there yet."""
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(AutoTokenizer=Letters))
    monkeypatch.setattr(Letters, "loaded", [])
    return root / "common/models/Tiny"
