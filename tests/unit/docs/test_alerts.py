"""The rules for Prometheus, by its own tool."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[3]


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_each_alert_fires_and_not_before(tmp_path: Path) -> None:
    tests = (REPO / "tests/alerts_test.yml").read_text().replace("ALERTS", str(REPO / "docs/alerts.yml"))
    file = tmp_path / "alerts_test.yml"
    file.write_text(tests)
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    # Each rule is in a test.
    rules = [line.partition("alert: ")[2] for line in (REPO / "docs/alerts.yml").read_text().splitlines()]
    assert all(f"alertname: {rule}" in tests for rule in filter(None, rules))
