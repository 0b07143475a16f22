"""The command line that opens a shell in a node."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils.node_command import Node
from ansible_collections.argus.verl.plugins.plugin_utils.shell import shell_line

HEAD = Node("head", engine="docker")
PROCESS = Node("head", directory="~/state/lab/nodes/head", python="/usr/bin/python3", registry="~/state/lab/jobs")
ANN = {"ansible_host": "10.0.0.7", "ansible_port": 2222, "ansible_user": "ann"}
ANN |= {"ansible_ssh_common_args": "-o 'ProxyJump=a b'"}
SLURM = {"ansible_connection": "argus.verl.srun", "slurm_job_id": 7, "slurm_node": "n1"}
INSIDE = "docker exec -it gpu-1 /usr/local/bin/argus shell sft-1"


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"ansible_connection": "local"}, INSIDE.split()),
        ({"ansible_connection": "local", "ansible_become": True}, ["sudo", *INSIDE.split()]),
        ({}, ["ssh", "-t", "gpu-1", INSIDE]),
        (ANN, ["ssh", "-t", "-o", "ProxyJump=a b", "-p", "2222", "-l", "ann", "10.0.0.7", INSIDE]),
        (SLURM, ["srun", "--jobid=7", "--nodelist=n1", "--overlap", "--pty", "/bin/sh", "-c", INSIDE]),
    ],
)
def test_how_a_node_is_reached(variables: dict[str, Any], words: list[str]) -> None:
    assert shlex.split(shell_line("sft-1", "gpu-1", HEAD, variables)) == words
    # A node without a container.
    inside = shlex.split(shlex.split(shell_line("sft-1", "gpu-1", PROCESS, {"ansible_become": True}))[-1])
    assert inside[:2] == ["env", "ARGUS_VERL_ENTER=~/state/lab/nodes/gpu-1"]
    assert inside[-4:] == ["/usr/bin/python3", "~/state/lab/program/current", "shell", "sft-1"]
