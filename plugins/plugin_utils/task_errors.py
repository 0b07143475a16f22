# SPDX-License-Identifier: GPL-3.0-or-later
"""The errors of tasks as text for people, and the summary at the end of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable, table

# The end of a run of Ansible: one line, and a table when several hosts failed.

# What Ansible counts, in the order in which it is shown, and its name there.
COUNTS = {
    "ok": "ok", "changed": "changed", "unreachable": "unreachable", "failures": "failed", "rescued": "rescued",
    "ignored": "ignored",
}  # fmt: skip
# Always shown: programs look for it to see whether a run changed something.
ALWAYS = "changed"
# How many hosts a row of the table names.
NAMED_HOSTS = 8


# The hosts that failed, by what happened and the task.
Failures = dict[tuple[str, str], list[str]]


def names(hosts: Iterable[str]) -> str:
    unique = list(dict.fromkeys(hosts))
    more = len(unique) - NAMED_HOSTS
    return ", ".join(unique[:NAMED_HOSTS]) + (f" and {more} more" if more > 0 else "")


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
            rows = [(kind, task, names(of_task)) for (kind, task), of_task in failures.items()]
            lines.insert(0, table(("result", "task", "hosts"), rows, width))
        return "\n".join(lines), "COLOR_ERROR"
    done = "Checked" if check_mode else "Done"
    return f"{done}: {all_hosts}  {counted}", "COLOR_CHANGED" if total[ALWAYS] else "COLOR_OK"
