"""Two people bring the same cluster up from nothing at the same moment."""

from __future__ import annotations

import subprocess

import pytest
from system import ENVIRONMENT, NODES, REPO, playbook, playbook_command


@pytest.mark.usefixtures("no_cluster")
def test_two_runs_at_once_make_one_healthy_cluster() -> None:
    runs = [
        subprocess.Popen(
            playbook_command("cluster_up"),
            cwd=REPO,
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _index in range(2)
    ]
    outputs = [run.communicate(timeout=900)[0] for run in runs]
    # One of them may find a container that the other has just made, and say so.
    assert any("3 of 3 nodes as expected" in output for output in outputs), outputs
    again = playbook("cluster_up").stdout
    assert "3 of 3 nodes as expected" in again
    names = subprocess.run(["docker", "ps", "--format", "{{.Names}}"], text=True, capture_output=True, check=True)
    assert sorted(set(NODES) & set(names.stdout.split())) == sorted(NODES)
