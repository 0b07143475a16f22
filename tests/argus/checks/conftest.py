from __future__ import annotations

from pathlib import Path

import checked_job
import pytest

from argus.checks import packages


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A shared root with everything that a job needs."""
    return checked_job.shared_root(tmp_path / "private")


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The packages of the workers; tests change them."""
    versions = {"numpy": "2.4.6", "tensordict": "0.10.0", "transferqueue": "0.1.11"}
    monkeypatch.setattr(packages, "installed_version", lambda request, name: versions.get(name))
    return versions
