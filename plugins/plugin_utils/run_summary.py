# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The end of a run of Ansible: one line, and a table when several hosts failed."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable, table

# What Ansible counts, in the order in which it is shown, and its name there.
COUNTS = {
    "ok": "ok", "changed": "changed", "unreachable": "unreachable", "failures": "failed", "rescued": "rescued",
    "ignored": "ignored",
}  # fmt: skip
# Always shown: programs look for it to see whether a run changed something.
ALWAYS = "changed"
# How many hosts a row of the table names.
NAMED_HOSTS = 8


class Failures:
    """The hosts that failed, by what happened and the task."""

    def __init__(self) -> None:
        self._hosts: dict[tuple[str, str], list[str]] = {}

    def add(self, host: str, kind: str, task: str) -> None:
        hosts = self._hosts.setdefault((kind, task), [])
        if host not in hosts:
            hosts.append(host)

    def rows(self) -> list[tuple[str, str, str]]:
        return [(kind, task, names(hosts)) for (kind, task), hosts in self._hosts.items()]


def names(hosts: list[str]) -> str:
    more = len(hosts) - NAMED_HOSTS
    return ", ".join(hosts[:NAMED_HOSTS]) + (f" and {more} more" if more > 0 else "")


def summary(
    hosts: Mapping[str, Mapping[str, int]], failures: Failures, check_mode: bool, width: int
) -> tuple[str, str]:
    """The text, and the name of its colour among Ansible's constants.

    hosts: what Ansible counted for each host.
    """
    failed = [host for host, counts in hosts.items() if counts["failures"] or counts["unreachable"]]
    total = {name: sum(counts[key] for counts in hosts.values()) for key, name in COUNTS.items()}
    counted = " ".join(f"{name}={count}" for name, count in total.items() if count or name == ALWAYS)
    all_hosts = f"{len(hosts)} host{'s'[: len(hosts) != 1]}"
    if failed:
        who = printable(failed[0], lines=False) if len(hosts) == 1 else f"{len(failed)} of {all_hosts}"
        lines = [f"Failed: {who}  {counted}"]
        if len(failed) > 1:
            lines.insert(0, table(("result", "task", "hosts"), failures.rows(), width))
        return "\n".join(lines), "COLOR_ERROR"
    done = "Checked" if check_mode else "Done"
    return f"{done}: {all_hosts}  {counted}", "COLOR_CHANGED" if total[ALWAYS] else "COLOR_OK"
