"""A node that is missing is reported, with the end of its log, and workers that are slow or hang are named."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from system import INVENTORY, REPO, SHARED_ROOT, playbook, said

SLOW, HANGING = "test-ray-worker-2", "test-ray-worker-3"
# The bandwidth of a worker with a bad link: enough for it and for Ray to work.
RATE = ("rate", "240mbit", "burst", "64kb", "latency", "100ms")
# Only root may slow down the network of a container that has no rights to it.
SHAPES = os.geteuid() == 0 and all(map(shutil.which, ("nsenter", "tc")))


@pytest.mark.slow
def test_workers_that_cannot_join_or_work_are_named(tmp_path: Path) -> None:
    # Its token file does not exist, which its log reports.
    broken = {"all": {"hosts": {"test-ray-worker-1": {"ray_node_env": {"RAY_AUTH_TOKEN_PATH": "/nowhere/token"}}}}}
    (tmp_path / "broken.yml").write_text(yaml.safe_dump(broken))
    more = {"all": {"children": {"workers": {"hosts": dict.fromkeys((SLOW, HANGING))}}}}
    (tmp_path / "more.yml").write_text(yaml.safe_dump(more))
    sources = (INVENTORY, tmp_path / "more.yml")
    # For hosts of another file, the inventory is in its directory.
    places = {"shared_root_source": str(SHARED_ROOT), "cluster_state_dir": str(REPO / ".cache" / "test" / "state")}

    broken_too = (*sources, tmp_path / "broken.yml")
    done = playbook("cluster_up", check=False, inventories=broken_too, ray_node_start_timeout=600, **places)
    assert done.returncode != 0
    assert "Cluster test: 4 of 5 nodes as expected" in done.stdout, done.stdout
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("test-ray-worker-1  missing")]
    # Known long before the timeout: it ends again and again, although the head answers.
    assert "its container ended" in row
    _, _, log = done.stdout.partition("The last lines of test-ray-worker-1:")
    assert "/nowhere/token" in log, done.stdout
    assert "The last lines of test-ray-worker-0:" not in done.stdout

    # Without the wrong setting, only that node is started again.
    again = playbook("cluster_up", inventories=sources, **places)
    assert "Cluster test: 5 of 5 nodes as expected" in again.stdout
    rows = [line.split()[:2] for line in again.stdout.partition("Changes")[2].splitlines()[2:3]]
    assert rows == [["test-ray-worker-1", "recreate"]]
    assert again.stdout.count("changed: [") == 1

    with degraded(SLOW, HANGING):
        deep = {"preflight_tier": "deep", "artifacts_dir": str(tmp_path), **places}
        checked = playbook("preflight", check=False, inventories=sources, **deep)
    text = said(checked.stdout)
    assert checked.returncode != 0
    assert f"error {HANGING} runs nothing that Ray starts on it" in text
    findings = json.loads((tmp_path / "preflight" / "test.json").read_text())["findings"]
    named = {(finding["key"], finding["where"]) for finding in findings if finding["key"].startswith("collective.")}
    slow = {("collective.bandwidth", SLOW)} if SHAPES else set()
    assert named == {*slow, ("collective.works", HANGING)}, findings


@contextmanager
def degraded(slow: str, hanging: str) -> Iterator[None]:
    """Let one worker send slowly, and another one hang."""
    inspected = ["docker", "inspect", "--format", "{{.State.Pid}}", slow]
    pid = subprocess.run(inspected, text=True, capture_output=True, check=True).stdout.strip()
    shaped = ["nsenter", "--target", pid, "--net", "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", *RATE]
    if SHAPES:
        subprocess.run(shaped, check=True)
    subprocess.run(["docker", "pause", hanging], check=True)
    try:
        yield
    finally:
        subprocess.run(["docker", "unpause", hanging], check=True)
