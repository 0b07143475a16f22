from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import Archive


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive(tmp_path / "grpo-1")
    made.reserve()
    return made
