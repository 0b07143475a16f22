"""The connection into nodes with real containers over real SSH; the machine is an sshd of this user, on this one."""

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
from system import ENVIRONMENT, REPO, said

IMAGE = "argus-verl-cpu:0.1.0"
NODE, STOPPED = "argus-connection-node", "argus-connection-stopped"
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
as_root = pytest.mark.skipif(os.getuid() != 0, reason="su needs a password here")


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
        known = f"-o UserKnownHostsFile={self.directory}/known -o IdentitiesOnly=yes"
        return {
            **{"ansible_host": "127.0.0.1", "ansible_port": self.port, "ansible_user": getpass.getuser()},
            **{"ansible_ssh_private_key_file": f"{self.directory}/key", "ansible_ssh_common_args": known},
        }

    def logins(self) -> int:
        return (self.directory / "log").read_text().count("Accepted publickey")


@pytest.fixture(scope="module")
def containers() -> Iterator[None]:
    run = ["--network", "none", "--user", "0:0", "--init", IMAGE, "sleep", "infinity"]
    remove = ["docker", "rm", "--force", NODE, STOPPED]
    subprocess.run(remove, capture_output=True, check=False)
    try:
        subprocess.run(
            ["docker", "run", "--detach", "--name", NODE, "--hostname", NODE, *run], check=True, capture_output=True
        )
        subprocess.run(["docker", "create", "--name", STOPPED, *run], check=True, capture_output=True)
        yield
    finally:
        subprocess.run(remove, capture_output=True, check=True)


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
    """Runs a command with a controller that has no engine, and with an inventory of machines and nodes."""
    inventory = directory / "hosts.json"
    nodes = {"ansible_connection": "argus.verl.node", "ansible_python_interpreter": "python3"}
    machines = {name: variables for name, variables in hosts.items() if "ray_node_machine" not in variables}
    ray = {name: variables for name, variables in hosts.items() if "ray_node_machine" in variables}
    groups = {"machines": {"hosts": machines}, "ray": {"hosts": ray, "vars": nodes}}
    inventory.write_text(json.dumps({"all": {"children": groups}}))
    none = directory / "bin"
    none.mkdir(exist_ok=True)
    (none / "docker").write_text("#!/bin/sh\necho the controller has no engine >&2\nexit 99\n")
    (none / "docker").chmod(0o755)
    environment = {
        **ENVIRONMENT,
        "ANSIBLE_SSH_ARGS": "-o ControlMaster=auto -o ControlPersist=20s",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(directory / "cp"),
        "PATH": f"{none}:{ENVIRONMENT['PATH']}",
    }
    return subprocess.run(
        [command[0], "-i", str(inventory), *command[1:]], cwd=REPO, env=environment, text=True, capture_output=True
    )


@pytest.fixture
def large(tmp_path: Path) -> Path:
    file = tmp_path / "large"
    # More than a part, and with all that a terminal would change.
    file.write_bytes((bytes(range(256)) * 4096) * 17 + b"\r\n\x04\xff")
    return file


@needs_sshd
@pytest.mark.parametrize(
    "rights",
    [{}, pytest.param({"ansible_become": True, "ansible_become_method": "ansible.builtin.su"}, marks=as_root)],
    ids=["user", "become"],
)
def test_a_node_of_a_machine_behind_ssh(
    containers: None, ssh: Ssh, large: Path, tmp_path: Path, rights: dict[str, Any]
) -> None:
    variables = {"node": NODE, "large": str(large), "back": str(tmp_path / "back")}
    # Those of the node are not those of SSH.
    node = {"ray_node_machine": "box", "ansible_host": "192.0.2.1", "ansible_user": "nobody", "ansible_port": 1}
    done = ansible(
        ssh.directory,
        *("ansible-playbook", str(REPO / "tests" / "connection" / "node.yml"), "-e", json.dumps(variables)),
        hosts={"box": ssh.variables() | rights, NODE: node},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "back").read_bytes() == large.read_bytes()
    # Tasks on the machine and in its node share a connection.
    assert ssh.logins() == 1


def test_a_node_of_this_machine(containers: None, large: Path, tmp_path: Path) -> None:
    variables = {"node": NODE, "large": str(large), "back": str(tmp_path / "back")}
    engine = shutil.which("docker")
    done = ansible(
        tmp_path,
        *("ansible-playbook", str(REPO / "tests" / "connection" / "node.yml"), "-e", json.dumps(variables)),
        hosts={
            "box": {"ansible_connection": "local"},
            NODE: {"ray_node_machine": "box", "ansible_node_engine": engine},
        },
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "back").read_bytes() == large.read_bytes()


# What the modules of a host answer on which jobs run as the user of Ansible: one of them has replaced the interpreter.
HOST = {"host_name": "forged", "groups": ["machines"], "host_vars": {"ansible_connection": "local"}}
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
def test_answers_of_a_host_on_which_jobs_run(ssh: Ssh, large: Path, tmp_path: Path) -> None:
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


@needs_sshd
def test_each_reason_why_there_is_no_connection_is_a_sentence(containers: None, ssh: Ssh) -> None:
    box, silent = ssh.variables(), ssh.directory / "engine"
    silent.write_text('#!/bin/sh\nexec docker -H unix:///nowhere.sock "$@"\n')
    silent.chmod(0o755)
    done = ansible(
        ssh.directory,
        *("ansible", "ray", "-m", "ansible.builtin.ping", "--one-line"),
        hosts={
            **{"box": box, "closed": box | {"ansible_port": free_port()}},
            "other-user": box | {"ansible_user": "nobody"},
            **{STOPPED: {"ray_node_machine": "box"}, "argus-connection-none": {"ray_node_machine": "box"}},
            **{"node-of-closed": {"ray_node_machine": "closed"}, "node-of-other": {"ray_node_machine": "other-user"}},
            "node-of-silent": {"ray_node_machine": "box", "ansible_node_engine": str(silent)},
            "node-of-nothing": {"ray_node_machine": "box", "ansible_node_engine": "/no/such-engine"},
            "node-of-unknown": {"ray_node_machine": "boxx"},
        },
    )
    text = said(done.stdout)
    for sentence in (
        f"container {STOPPED} is not running on box. cluster_up.yml starts it",
        "there is no container argus-connection-none on box. cluster_up.yml starts it",
        "node-of-closed: no connection to its machine closed: ssh: connect to host 127.0.0.1 port",
        "Connection refused",
        "node-of-other: no connection to its machine other-user:",
        "Permission denied (publickey",
        "engine does not answer on box. Start its daemon there",
        "node-of-nothing: box has no command /no/such-engine, or not on the PATH of its user",
        "ray_node_machine of node-of-unknown is boxx, which is not in the inventory",
    ):
        assert sentence in text, done.stdout + done.stderr
    assert "Traceback" not in text and "MODULE FAILURE" not in text
