"""After Ctrl-C, the same command brings up a healthy cluster."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time

import pytest
from system import ENVIRONMENT, NODES, REPO, on_node, playbook, playbook_command


@pytest.mark.usefixtures("no_cluster")
def test_interrupted_run_can_be_repeated() -> None:
    first = subprocess.Popen(
        playbook_command("cluster_up"),
        cwd=REPO,
        env=ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    # While nodes are made.
    time.sleep(3.0)
    assert interrupted(first) != 0
    again = playbook("cluster_up")
    assert "3 of 3 nodes as expected" in again.stdout
    for node in NODES[1:]:
        assert "success" in on_node(node, "python3", "-c", HEALTH)


def interrupted(run: subprocess.Popen[bytes]) -> int:
    """Press Ctrl-C, and again if nothing happens: while Python starts, a signal may be lost."""
    while True:
        os.killpg(run.pid, signal.SIGINT)  # like a terminal: to the whole foreground group
        with contextlib.suppress(subprocess.TimeoutExpired):
            return run.wait(15)


HEALTH = """
import urllib.request
print(urllib.request.urlopen("http://127.0.0.1:21013/api/local_raylet_healthz").read().decode())
"""
