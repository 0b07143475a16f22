# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hostfiles of MPI, DeepSpeed and torchrun: hosts, and how many processes each of them takes."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...module_utils.argus.common.findings import Finding
from ...module_utils.argus.common.text import one_line
from ...module_utils.cluster.process_host import is_reachable
from .inventory import HEADS, WORKERS
from .nodes import CONTAINER

# A name that DNS can have, or an alias in ssh_config.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
NUMBER = re.compile(r"[1-9][0-9]{0,3}")
# [ADDRESS]:SLOTS, HOST:SLOTS and HOST; an IPv6 address without brackets has no slots.
BRACKETS = re.compile(r"\[([^\[\]]*)\](?::(.*))?")
SLOTS = "slots"
# Open MPI's upper limit of the slots, which no one exceeds here.
IGNORED = ("max_slots", "max-slots")
FORMS = "write HOST, HOST slots=N or HOST:N"
# The addresses of a name.
Resolve = Callable[[str], Sequence[str]]


@dataclass(frozen=True)
class Host:
    """A host, the first line that names it, and its slots; None if no line has any.

    lines: how many lines name it.
    """

    name: str
    line: int
    slots: int | None = None
    lines: int = 1

    @property
    def gpus(self) -> int | None:
        """Its GPUs; None if the file does not say how many."""
        return self.slots or (self.lines if self.lines > 1 else None)


class HostfileError(ValueError):
    def __init__(self, what: str, todo: str) -> None:
        super().__init__(what)
        self.what, self.todo = what, todo


def is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def parse(text: str, file: str) -> tuple[list[Host], list[Finding]]:
    """The hosts of a hostfile in their order, and all its problems."""
    hosts: dict[str, Host] = {}
    found: list[Finding] = []
    for number, line in enumerate(text.splitlines(), start=1):
        stated = line.partition("#")[0].split()
        if not stated:
            continue
        try:
            name, slots = _name_and_slots(stated)
            host = hosts.setdefault(name, Host(name, number, slots, lines=0))
            if host.lines and not (host.slots is None and slots is None):
                what = f"{name} is already on line {host.line}"
                raise HostfileError(what, "give a host one line with all its slots")
            # PBS writes a line for each slot.
            hosts[name] = replace(host, lines=host.lines + 1)
        except HostfileError as error:
            found.append(Finding(f"{file}, line {number}", error.what, error.todo))
    if not hosts and not found:
        found.append(Finding(file, "has no hosts", FORMS))
    return list(hosts.values()), found


def _name_and_slots(words: Sequence[str]) -> tuple[str, int | None]:
    name, given = _split(words[0])
    if not is_address(name) and not NAME.fullmatch(name):
        what = f"{one_line(words[0], 100)!r} is neither the name nor the address of a host"
        todo = "set ansible_user in group_vars" if "@" in words[0] else FORMS
        raise HostfileError(what, todo)
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if not equals or key not in (SLOTS, *IGNORED):
            raise HostfileError(f"{one_line(word, 100)!r} is not known", FORMS)
        if key == SLOTS:
            if given is not None:
                raise HostfileError("has two numbers of slots", "keep one of them")
            given = value
    if given is not None and not NUMBER.fullmatch(given):
        raise HostfileError(f"slots are {one_line(given, 100)!r}", "give a number of GPUs, 1 or more")
    return name, None if given is None else int(given)


def _split(word: str) -> tuple[str, str | None]:
    """A host, and the slots that follow it after a colon."""
    if bracketed := BRACKETS.fullmatch(word):
        return bracketed[1], bracketed[2]
    if is_address(word):
        return word, None
    name, colon, slots = word.partition(":")
    return name, slots if colon else None


@dataclass(frozen=True)
class InventoryHost:
    """A host of the inventory with its group and variables."""

    name: str
    group: str
    variables: dict[str, Any]


def inventory_of(
    hosts: Sequence[Host], runtime: str, file: str, resolve: Resolve
) -> tuple[list[InventoryHost], list[Finding]]:
    """The cluster on these hosts, with the head on the first of them, and a worker on each.

    resolve: the addresses of a name. Only nodes in containers need it: others find their own.
    """
    placed: list[InventoryHost] = []
    found: list[Finding] = []
    for number, host in enumerate(hosts):
        own: dict[str, Any] = {"ansible_host": host.name}
        if runtime == CONTAINER:
            own |= {"ray_node_machine": host.name, "ray_node_address": address_of(host, resolve)}
            if not own["ray_node_address"]:
                what = f"{host.name} has no address at which other hosts reach it"
                todo = "write its address in place of its name"
                found.append(Finding(f"{file}, line {host.line}", what, todo))
        if number == 0:
            placed.append(InventoryHost("ray-head", HEADS, own))
        gpus = {} if host.gpus is None else {"ray_node_gpus": host.gpus}
        placed.append(InventoryHost(f"ray-worker-{number}", WORKERS, {**own, **gpus}))
    return placed, found


def address_of(host: Host, resolve: Resolve) -> str:
    """The address of a host for other hosts, IPv4 if it has one, or ""."""
    addresses = [host.name] if is_address(host.name) else resolve(host.name)
    return min(filter(is_reachable, addresses), key=lambda one: ":" in one, default="")
