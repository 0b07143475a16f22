from __future__ import annotations

from pathlib import Path

import pytest

from argus.archive.archive import Archive


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "jobs" / "grpo-1")
    made.reserve()
    return made
