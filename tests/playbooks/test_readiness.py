"""Readiness: a cluster with a missing node is reported, with the end of that node's log."""

from __future__ import annotations

from pathlib import Path

import yaml
from system import INVENTORY, playbook


def test_worker_that_cannot_join_is_reported_with_its_log(tmp_path: Path) -> None:
    # Its token file does not exist, which its log reports.
    broken = {"all": {"hosts": {"test-ray-worker-1": {"ray_node_env": {"RAY_AUTH_TOKEN_PATH": "/nowhere/token"}}}}}
    (tmp_path / "broken.yml").write_text(yaml.safe_dump(broken))
    sources = (INVENTORY, tmp_path / "broken.yml")

    done = playbook("cluster_up", check=False, inventories=sources, ray_node_start_timeout=600)
    assert done.returncode != 0
    assert "Cluster test: 2 of 3 nodes as expected" in done.stdout, done.stdout
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("test-ray-worker-1  missing")]
    # Known long before the timeout: it ends again and again, although the head answers.
    assert "its container ended" in row
    _, _, log = done.stdout.partition("The last lines of test-ray-worker-1:")
    assert "/nowhere/token" in log, done.stdout
    assert "The last lines of test-ray-worker-0:" not in done.stdout

    # Without the wrong setting, only that node is started again.
    again = playbook("cluster_up")
    assert "Cluster test: 3 of 3 nodes as expected" in again.stdout
    rows = [line.split()[:2] for line in again.stdout.partition("Changes")[2].splitlines()[2:3]]
    assert rows == [["test-ray-worker-1", "recreate"]]
    assert again.stdout.count("changed: [") == 1
