"""Real sockets: every address 127.0.0.x is this machine."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest
from ansible_collections.argus.verl.plugins.module_utils.network import background
from ansible_collections.argus.verl.plugins.module_utils.network.background import Background
from ansible_collections.argus.verl.plugins.module_utils.network.reach import (
    Outcome,
    Reached,
    connect,
    listen,
    measure,
    to_json,
)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    found = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return found


@pytest.fixture
def dark() -> Iterator[int]:
    """A port whose queue is full: the kernel drops what asks for a connection, as a firewall does."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        port = listener.getsockname()[1]
        clients = [socket.socket() for _ in range(4)]
        for client in clients:
            client.setblocking(False)
            client.connect_ex(("127.0.0.1", port))
        yield port
        for client in clients:
            client.close()


def reap(process: Background) -> None:
    """The test is the parent; of a module, nobody is."""
    os.waitpid(process.pid, 0)


def test_machine_that_listens_on_free_ports_is_reached() -> None:
    one, other, closed = free_ports(3)
    with socket.socket() as holder:
        holder.bind(("127.0.0.2", other))
        holder.listen()
        listening = listen([one, other], 60, "127.0.0.2")
        assert (listening.ports, listening.busy) == ([one], [other])
        found = measure({"b": "127.0.0.2", "c": "127.0.0.3"}, [one, other, closed], 5)
    assert found["b"].failed == {"refused": [closed]}
    assert found["b"].milliseconds is not None
    assert found["c"] == Reached(None, {"refused": [one, other, closed]})
    assert background.end(listening.process)
    reap(listening.process)
    # The second time, there is nothing to end.
    assert not background.end(listening.process)
    assert connect("127.0.0.2", one, 5)[0] == Outcome.REFUSED


def test_process_ends_by_itself() -> None:
    listening = listen(free_ports(1), 1, "127.0.0.1")
    _pid, status = os.waitpid(listening.process.pid, 0)
    assert os.WIFSIGNALED(status)


def test_process_holds_nothing_but_its_sockets() -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    listening = listen(free_ports(2), 60, "127.0.0.1")
    os.close(writing)
    # As Ansible does, this waits until nobody has the other end.
    assert os.read(reading, 1) == b""
    os.close(reading)
    assert background.end(listening.process)
    reap(listening.process)


def test_other_process_of_the_same_number_is_left_alone() -> None:
    own = background.start_time(os.getpid())
    assert own > 0
    assert not background.end(Background(os.getpid(), own + 1))
    assert not background.end(Background(2**22 + 1, 0))
    assert background.start_time(2**22 + 1) == 0


def test_port_without_an_answer(dark: int) -> None:
    assert connect("127.0.0.1", dark, 0.3)[0] == Outcome.TIMEOUT
    assert measure({"a": "127.0.0.1"}, [dark], 0.3)["a"] == Reached(None, {"timeout": [dark]})


def test_address_without_a_route() -> None:
    assert connect("255.255.255.255", 1, 1)[0] == Outcome.UNREACHABLE
    assert connect("no such name.invalid", 1, 1)[0] == Outcome.UNREACHABLE


@pytest.mark.parametrize("first", [0, 1, 2, 5])
def test_targets_are_all_there_wherever_one_begins(first: int) -> None:
    (port,) = free_ports(1)
    found = measure({"a": "127.0.0.1", "b": "127.0.0.2", "c": "127.0.0.3"}, [port], 5, first)
    assert list(found) == ["a", "b", "c"]
    assert measure({}, [port], 5, first) == {}


def test_json() -> None:
    found = {"a": Reached(0.5, {"timeout": [1]})}
    assert {name: Reached.from_json(each) for name, each in to_json(found).items()} == found
