from __future__ import annotations

from pathlib import Path

import gate_job
import pytest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A shared root with everything that a job needs."""
    return gate_job.shared_root(tmp_path / "private")
