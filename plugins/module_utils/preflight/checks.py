# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The words of preflight: checks, problems and topics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, TypeVar

from ..argus.common.findings import ERROR, NOTE, WARNING, Finding
from ..cluster.machine import Machine
from .expectation import Expectation
from .reader import Reader
from .tier import Tier

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Check:
    """Something that is checked.

    key: its name, by which an operator accepts it: the topic and a word, as in "gpu.ecc".
    severity: "error" or "warning", unless a problem has its own.
    about: what is checked, as a phrase for the documentation.
    todo: what to do about a problem that has no instruction of its own.
    """

    key: str
    severity: str
    about: str
    todo: str = ""
    tier: Tier = Tier.FAST


# About machines themselves. All others are in the modules of their topics, which filters need not import for these.
REACHABLE = Check("machine.reachable", ERROR, "Ansible reaches the machine")
CLOCK = Check("machine.clock", WARNING, "the clock agrees with that of the head's machine")


class Problem(NamedTuple):
    """A finding without its place, which is the same for all of a machine. Empty texts are those of the check."""

    check: Check
    what: str
    todo: str = ""
    severity: str = ""

    def finding(self, where: str) -> Finding:
        return Finding(
            where, self.what, self.todo or self.check.todo, self.severity or self.check.severity, key=self.check.key
        )


def accepted(finding: Finding, accept: Sequence[str]) -> Finding:
    """A finding that the operator knows of is a note. accept: keys, as key or key@host."""
    if finding.severity != NOTE and finding.key and {finding.key, f"{finding.key}@{finding.where}"} & set(accept):
        return replace(finding, severity=NOTE, what=f"accepted: {finding.what}")
    return finding


@dataclass(frozen=True)
class Context:
    """What is known of a machine besides the answer of a topic: its basic probe, and what is expected of it."""

    host: str
    machine: Machine
    expected: Expectation


@dataclass(frozen=True)
class Section:
    """A table of a playbook's own, such as who reaches whom."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def no_differences(_answers: Mapping[str, Any], _contexts: Mapping[str, Context]) -> Iterable[Finding]:
    return ()


def no_columns(_answer: Any) -> Mapping[str, str]:
    return {}


def no_cells(_answers: Mapping[str, Any], _contexts: Mapping[str, Context]) -> Mapping[str, Mapping[str, str]]:
    return {}


@dataclass(frozen=True)
class Topic(Generic[Answer]):
    """Checks that share what they read on a machine.

    name: the first part of the keys of its checks.
    kind: the frozen dataclass that read returns. It is parsed with launcher.schema: plain types, dataclasses,
        tuple[X, ...] and Mapping[str, X]; a field that may be missing has a default.
    read: what the machine answers. It should not raise, and may hang.
    judge: what is wrong with one machine.
    compare: what differs between machines, by host.
    columns: cells of the hardware table, by the title of the column.
    cells: the same by host, where they depend on the other machines.
    """

    name: str
    kind: type[Answer]
    checks: tuple[Check, ...]
    read: Callable[[Reader], Answer]
    judge: Callable[[Answer, Context], Iterable[Problem]]
    compare: Callable[[Mapping[str, Answer], Mapping[str, Context]], Iterable[Finding]] = no_differences
    columns: Callable[[Answer], Mapping[str, str]] = no_columns
    cells: Callable[[Mapping[str, Answer], Mapping[str, Context]], Mapping[str, Mapping[str, str]]] = no_cells

    @property
    def answers(self) -> Check:
        """Every topic has the check that it is read at all."""
        return Check(
            f"{self.name}.answers",
            ERROR,
            "the machine answers in time",
            "look for processes in state D on the machine (ps -eo pid,stat,wchan,cmd); it may have to be restarted",
        )


def common(values: Mapping[str, str]) -> str:
    """The most frequent value of all hosts; the first of several that are equally frequent."""
    counts: dict[str, int] = {}
    for value in values.values():
        counts[value] = counts.get(value, 0) + 1
    return max(counts, key=lambda value: counts[value], default="")


def differences(check: Check, what: str, values: Mapping[str, str]) -> Iterable[Finding]:
    """A finding for each host whose value is not that of most hosts. A host without a value is left out."""
    known = {host: value for host, value in values.items() if value}
    usual = common(known)
    same = sum(value == usual for value in known.values())
    for host, value in known.items():
        if value != usual:
            yield Problem(check, f"{what} is {value}, on {same} of {len(known)} machines it is {usual}").finding(host)
