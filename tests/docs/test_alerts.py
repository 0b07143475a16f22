"""The rules for Prometheus and the dashboard for Grafana, by the tool of Prometheus."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from argus.archive.archive import Archive
from argus.steward.web import JobCollector

REPO = Path(__file__).resolve().parents[2]


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


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is not installed")
def test_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    """They are queries, of metrics that the steward or Ray has."""
    board = json.loads((REPO / "docs/grafana.json").read_text())
    queries = [target["expr"].replace("$job", ".*") for panel in board["panels"] for target in panel["targets"]]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    subprocess.run(["promtool", "check", "rules", str(file)], check=True, capture_output=True)
    metrics = {family.name for family in JobCollector(lambda: [Archive(tmp_path / "jobs" / "a")]).collect()}
    assert {name for query in queries for name in re.findall(r"argus_\w+", query)} == metrics
