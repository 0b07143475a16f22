"""After Ctrl-C at any moment, the same command brings up a healthy cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest
from system import ENVIRONMENT, NODES, REPO, on_node, playbook, playbook_command


@pytest.mark.parametrize("seconds", [1.5, 3.0, 5.0])
def test_interrupted_run_can_be_repeated(seconds: float) -> None:
    first = subprocess.Popen(
        playbook_command("cluster_up"),
        cwd=REPO,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    time.sleep(seconds)
    os.killpg(first.pid, signal.SIGINT)  # like a terminal: to the whole foreground group
    assert first.wait(30) != 0
    again = playbook("cluster_up")
    assert "3 of 3 nodes as expected" in again.stdout
    for node in NODES[1:]:
        assert "success" in on_node(node, "python3", "-c", HEALTH)


HEALTH = """
import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:52365/api/local_raylet_healthz").read().decode())
"""
