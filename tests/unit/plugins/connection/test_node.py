"""The connection with a real connection to the machine, which is this one, and a program in place of the engine.

tests/connection has real containers, over real SSH.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible import constants
from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.play_context import PlayContext
from ansible.template import Templar
from ansible_collections.argus.verl.plugins.connection import node
from ansible_collections.argus.verl.plugins.plugin_utils.copying import READ_PART

NAME = "argus.verl.node"
NODE, MACHINE = "ray-head", "gpu-0"
# Leaves "exec -i NODE" out, and tells what it was asked.
ENGINE = """#!/bin/sh
echo "$1 $2 $3" >> '{log}'
shift 3
exec "$@"
"""
Connected = Callable[..., Any]


def load() -> Any:
    """What ansible-core's loader does, which cannot load what Python has imported as a usual package before."""
    options = yaml.safe_load(node.DOCUMENTATION)["options"]
    constants.config.initialize_plugin_configuration_definitions("connection", NAME, options)
    connection = node.Connection(PlayContext())
    connection._load_name = NAME
    return connection


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    program = tmp_path / "engine"
    program.write_text(ENGINE.format(log=tmp_path / "asked"))
    program.chmod(0o755)
    return program


@pytest.fixture
def connected(engine: Path) -> Connected:
    """Makes the connection of a task as ansible-core does, with these variables of the machine."""

    def connect(delegate_to: str | None = None, machine: Any = None, **changes: Any) -> Any:
        own = {"ray_node_machine": MACHINE, "ansible_node_engine": str(engine), "inventory_hostname": NODE} | changes
        box = {"ansible_connection": "local", "inventory_hostname": MACHINE} | (machine or {})
        variables: dict[str, Any] = {**own, "hostvars": {NODE: own, MACHINE: box}}
        if delegate_to:
            # What ansible-core gives then: the name is that of the other host.
            variables |= {"inventory_hostname": MACHINE, "ray_node_machine": "{{ inventory_hostname }}"}
        connection = load()
        options = connection._resolve_option_variables(variables, Templar(loader=DataLoader(), variables=variables))
        connection.set_options(task_keys={"delegate_to": delegate_to, "connection": "ssh"}, var_options=options)
        return connection

    return connect


def test_a_command_runs_in_the_node(connected: Connected, tmp_path: Path) -> None:
    code, stdout, stderr = connected().exec_command("cat; echo error >&2; exit 3", in_data=b"in\0put")
    assert (code, stdout, stderr) == (3, b"in\0put", b"error\n")
    assert (tmp_path / "asked").read_text() == f"exec -i {NODE}\n"


def test_the_engine_of_the_cluster_unless_its_command_is_set(connected: Connected) -> None:
    assert connected(cluster_engine="podman")._place.engine.endswith("/engine")
    assert connected(cluster_engine="podman", ansible_node_engine="/opt/podman")._place.engine == "/opt/podman"
    variables = {"ray_node_machine": MACHINE, "inventory_hostname": NODE, "cluster_engine": "podman"}
    connection = load()
    connection.set_options(var_options={**variables, "hostvars": {NODE: variables, MACHINE: {}}})
    assert connection._place.engine == "podman"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("sleep 60", "a command has not ended within 1 s"),
        ("printf '{'; sleep 60", "a command has not ended within 1 s"),
        ("trap '' TERM; sleep 60 & wait; sleep 60", "a command has not ended within 1 s"),
        ("head -c 20000000 /dev/zero", "a command has printed more than 16 MiB"),
        ("yes", "a command has printed more than 16 MiB"),
    ],
)
@pytest.mark.parametrize("delegate_to", [None, NODE])
def test_limits(connected: Connected, command: str, reason: str, delegate_to: str | None) -> None:
    """Also of a task that is delegated: the machine's own tasks are."""
    began = time.monotonic()
    with pytest.raises(AnsibleConnectionFailure, match=f"{NODE}: {reason}"):
        connected(delegate_to=delegate_to, ansible_node_timeout=1).exec_command(command)
    assert time.monotonic() - began < 30


def test_errors_are_limited_and_output_below_the_limit_is_whole(connected: Connected) -> None:
    code, stdout, stderr = connected().exec_command("head -c 16000000 /dev/zero; yes | head -c 9000000 >&2; exit 7")
    assert (code, len(stdout), len(stderr)) == (7, 16000000, 1 << 20)


def test_a_task_that_is_delegated_to_the_node(connected: Connected, tmp_path: Path) -> None:
    assert connected(delegate_to=NODE).exec_command("echo x")[1] == b"x\n"
    assert (tmp_path / "asked").read_text() == f"exec -i {NODE}\n"


def test_the_name_of_the_container_is_that_of_the_inventory(connected: Connected, tmp_path: Path) -> None:
    connection = connected(ansible_host="10.0.0.1", ansible_user="nobody")
    connection.exec_command("true")
    assert (tmp_path / "asked").read_text() == f"exec -i {NODE}\n"
    # Otherwise Ansible would look for that user's home in the container.
    assert connection.get_option("remote_user") is None


def test_a_reason_that_was_lost_is_asked_for_again(connected: Connected, tmp_path: Path) -> None:
    """ssh may end before Ansible has written its input, and Ansible then does not read what ssh says."""
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nexec 0<&-\necho 'ssh: connect to host box port 22: No route to host' >&2\nexit 255\n")
    ssh.chmod(0o755)
    machine = {"ansible_connection": "ssh", "ansible_ssh_executable": str(ssh)}
    expected = f"^{NODE}: no connection to its machine {MACHINE}: ssh: connect to host box port 22: No route to host$"
    # More than a pipe takes.
    for data in (b"x" * (1 << 20), b"x", None):
        with pytest.raises(AnsibleConnectionFailure, match=expected):
            connected(machine=machine).exec_command("true", in_data=data)


def test_another_user_in_the_container(connected: Connected) -> None:
    connection = connected(ansible_node_user=0)
    assert connection.get_option("remote_user") == "0"
    assert " exec -i --user 0 ray-head /bin/sh -c id" in connection._place.command("/bin/sh", "id")


@pytest.mark.parametrize("size", [0, 1, READ_PART, READ_PART + 1])
def test_files(connected: Connected, tmp_path: Path, size: int) -> None:
    source, there, back = tmp_path / "source", tmp_path / "in the node", tmp_path / "back"
    content = bytes(range(256)) * (size // 256) + b"\r" * (size % 256)
    source.write_bytes(content)
    there.write_bytes(b"before" * 10)
    connection = connected()
    connection.put_file(str(source), str(there))
    assert there.read_bytes() == content
    connection.fetch_file(str(there), str(back))
    assert back.read_bytes() == content


def test_files_that_cannot_be_copied(connected: Connected, tmp_path: Path) -> None:
    connection = connected()
    with pytest.raises(AnsibleError, match="does not exist: /none"):
        connection.put_file("/none", str(tmp_path / "x"))
    with pytest.raises(AnsibleError, match=f"{NODE}: /none was not copied: .*No such file"):
        connection.fetch_file("/none", str(tmp_path / "x"))
    (tmp_path / "x").write_bytes(b"x")
    with pytest.raises(AnsibleError, match=f"{NODE}: /none/x was not copied: .*No such file"):
        connection.put_file(str(tmp_path / "x"), "/none/x")


def test_the_engine_runs_with_the_rights_that_the_machine_needs(connected: Connected, tmp_path: Path) -> None:
    become = tmp_path / "become"
    become.write_text(
        f'#!/bin/sh\necho "$@" >> \'{tmp_path}/became\'\nwhile [ $1 != -c ]; do shift; done\nexec sh "$@"\n'
    )
    become.chmod(0o755)
    machine = {
        **{"ansible_become": "yes", "ansible_become_method": "sudo", "ansible_become_exe": str(become)},
        **{"ansible_become_user": "docker-user", "ansible_become_flags": "-H"},
    }
    connection = connected(machine=machine)
    assert connection.exec_command("cat; exit 4", in_data=b"in") == (4, b"in", b"")
    assert (tmp_path / "became").read_text().startswith("-H -u docker-user /bin/sh -c ")
    (tmp_path / "source").write_bytes(b"\xff\0")
    connection.put_file(str(tmp_path / "source"), str(tmp_path / "there"))
    connection.fetch_file(str(tmp_path / "there"), str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == b"\xff\0"


def test_a_machine_that_asks_for_a_password(connected: Connected, tmp_path: Path) -> None:
    become = tmp_path / "become"
    become.write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    become.chmod(0o755)
    with pytest.raises(AnsibleConnectionFailure, match=f"becoming another user on {MACHINE} needs a password"):
        connected(machine={"ansible_become": True, "ansible_become_exe": str(become)}).exec_command("true")


@pytest.mark.parametrize(
    "machine", [{}, {"ansible_become": True, "ansible_become_exe": "env", "ansible_become_flags": ""}]
)
def test_an_engine_that_refuses(connected: Connected, engine: Path, machine: dict[str, Any]) -> None:
    engine.write_text("#!/bin/sh\necho 'Error: No such container: ray-head' >&2\nexit 1\n")
    machine |= {"ansible_become_user": ""}
    with pytest.raises(AnsibleConnectionFailure, match=f"^there is no container {NODE} on {MACHINE}. cluster_up"):
        connected(machine=machine).exec_command("true")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ray_node_machine": "gpu-9"}, "ray_node_machine of ray-head is gpu-9, which is not in the inventory"),
        ({"ray_node_machine": NODE}, "ray-head has no machine whose connection leads to it. Set ray_node_machine"),
        ({"ray_node_machine": None}, "ray-head has no machine whose connection leads to it"),
        (
            {"machine": {"ansible_connection": "argus.verl.node"}},
            "ray-head has no machine whose connection leads to it",
        ),
        (
            {"machine": {"ansible_connection": "no.such.plugin"}},
            "gpu-0 has an unknown ansible_connection: no.such.plugin",
        ),
    ],
)
def test_inventories_that_lead_nowhere(connected: Connected, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(AnsibleError, match=message):
        connected(**changes).exec_command("true")


def test_the_variables_of_the_machine_are_those_of_its_connection(connected: Connected) -> None:
    machine = {
        **{"ansible_connection": "ssh", "ansible_host": "10.0.0.11", "ansible_port": 2222, "ansible_user": "ml"},
        **{"ansible_ssh_private_key_file": "/keys/id", "ansible_ssh_common_args": "-J jump", "ansible_timeout": 7},
    }
    inner = connected(machine=machine, ansible_host="1.1.1.1", ansible_user="other", ansible_port=1)._machine()
    assert {name: inner.get_option(name) for name in ("host", "port", "remote_user", "private_key_file")} == {
        **{"host": "10.0.0.11", "port": 2222, "remote_user": "ml", "private_key_file": "/keys/id"},
    }
    assert (inner.get_option("ssh_common_args"), inner.get_option("timeout")) == ("-J jump", 7)
    # It would change the bytes of files.
    assert inner.get_option("use_tty") is False
    context = inner._play_context
    assert (context.remote_addr, context.port, context.remote_user) == ("10.0.0.11", 2222, "ml")


def test_a_machine_without_variables_is_reached_by_its_name_over_ssh(connected: Connected) -> None:
    connection = connected(machine={"ansible_connection": None})
    inner = connection._machine()
    assert (inner.transport, inner.get_option("host"), inner.get_option("port")) == ("ssh", MACHINE, None)
    assert inner._play_context.remote_addr == MACHINE


def test_variables_of_another_task_make_another_connection(connected: Connected, engine: Path) -> None:
    connection = connected()
    first = connection._machine()
    assert connection._machine() is first
    connection.set_options(task_keys={}, var_options={})
    with pytest.raises(AnsibleError, match="not in the inventory"):
        connection._machine()
