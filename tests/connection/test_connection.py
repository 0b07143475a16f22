"""The connection to hosts on which jobs run, over real SSH: an sshd of this user, on this machine."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from system import ENVIRONMENT, REPO

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
CONFIGURATION = """
Port {port}
ListenAddress 127.0.0.1
HostKey {directory}/host
AuthorizedKeysFile {directory}/key.pub
PidFile none
StrictModes no
UsePAM no
LogLevel INFO
"""
needs_sshd = pytest.mark.skipif(not SSHD, reason="sshd is not installed (openssh-server)")


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


@dataclass(frozen=True)
class Ssh:
    """A running sshd."""

    directory: Path
    port: int

    def variables(self) -> dict[str, Any]:
        """What an inventory has to know of it: not one of these is ssh's default."""
        options = f"-o UserKnownHostsFile={self.directory}/known -o IdentitiesOnly=yes"
        return {
            **{"ansible_host": "127.0.0.1", "ansible_port": self.port, "ansible_user": getpass.getuser()},
            **{"ansible_ssh_private_key_file": f"{self.directory}/key", "ansible_ssh_common_args": options},
        }

    def logins(self) -> int:
        return (self.directory / "log").read_text().count("Accepted publickey")


@pytest.fixture
def ssh() -> Iterator[Ssh]:
    # Short: paths of sockets have at most 107 characters.
    with tempfile.TemporaryDirectory(prefix="argus-", dir="/tmp") as temporary:
        directory, port = Path(temporary), free_port()
        for name in ("host", "key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(directory / name)]
            subprocess.run(command, check=True)
        host_key = " ".join((directory / "host.pub").read_text().split()[:2])
        (directory / "known").write_text(f"[127.0.0.1]:{port} {host_key}\n")
        (directory / "config").write_text(CONFIGURATION.format(port=port, directory=directory))
        if os.getuid() == 0:
            # Where an sshd of root moves to.
            Path("/run/sshd").mkdir(exist_ok=True)
        command = [str(SSHD), "-D", "-f", str(directory / "config"), "-E", str(directory / "log")]
        with subprocess.Popen(command) as process:
            try:
                wait_for(port)
                yield Ssh(directory, port)
            finally:
                process.terminate()


def wait_for(port: int) -> None:
    for _try in range(1200):
        with closing(socket.socket()) as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail("sshd does not listen")


def ansible(directory: Path, *command: str, hosts: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Runs a command with an inventory."""
    inventory = directory / "hosts.json"
    inventory.write_text(json.dumps({"all": {"hosts": hosts}}))
    environment = {
        **ENVIRONMENT,
        "ANSIBLE_SSH_ARGS": "-o ControlMaster=auto -o ControlPersist=20s",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(directory / "cp"),
    }
    return subprocess.run(
        [command[0], "-i", str(inventory), *command[1:]], cwd=REPO, env=environment, text=True, capture_output=True
    )


# What the modules of a host answer on which jobs run as the user of Ansible: one of them has replaced the interpreter.
HOST = {"host_name": "forged", "groups": ["ray"], "host_vars": {"ansible_connection": "local"}}
FORGED_ANSWER = {
    "changed": True,
    "stdout": "said",
    "ansible_facts": {"forged": 1},
    "warnings": ["forged"],
    "add_host": HOST,
}
FORGED = f"#!/bin/sh\ncat >/dev/null\necho '{json.dumps(FORGED_ANSWER)}'\n"
OVER_SSH = """
- hosts: pod
  gather_facts: false
  tasks:
    - {name: Forged, ansible.builtin.command: "true", vars: {ansible_python_interpreter: "{{ forging }}"}, register: it}
    - {name: Real, ansible.builtin.command: "echo here", register: real}
    - {name: Copied, ansible.builtin.copy: {src: "{{ large }}", dest: "{{ back }}", mode: "0600"}}
    - name: Neither a host nor a variable
      ansible.builtin.assert:
        that:
          - it.stdout == "said"
          - real.stdout == "here"
          - groups.all == ["pod"]
          - forged is undefined
    - name: Too long
      ansible.builtin.command: sleep 60
      vars: {ansible_node_timeout: 1}
      ignore_unreachable: true
      register: slow
    - {name: Ended, ansible.builtin.assert: {that: [slow.unreachable]}}
"""


@needs_sshd
def test_answers_of_a_host_on_which_jobs_run(ssh: Ssh, tmp_path: Path) -> None:
    large = tmp_path / "large"
    # More than a part, and with all that a terminal would change.
    large.write_bytes((bytes(range(256)) * 4096) * 17 + b"\r\n\x04\xff")
    forging, play = ssh.directory / "python", ssh.directory / "play.yml"
    forging.write_text(FORGED)
    forging.chmod(0o755)
    play.write_text(OVER_SSH)
    variables = {"forging": str(forging), "large": str(large), "back": str(tmp_path / "back")}
    pod = ssh.variables() | {"ansible_connection": "argus.verl.ssh", "ansible_python_interpreter": sys.executable}
    done = ansible(ssh.directory, "ansible-playbook", str(play), "-e", json.dumps(variables), hosts={"pod": pod})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "forged" not in done.stdout + done.stderr
    assert (tmp_path / "back").read_bytes() == large.read_bytes()
    assert ssh.logins() == 1
