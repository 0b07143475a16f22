"""No task asks one host for each of many: its sshd refuses when too many sessions come at once (MaxStartups)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

REPO = Path(__file__).resolve().parents[3]
Task = dict[str, Any]


def tasks_of(tasks: list[Task], above: Task) -> Iterator[Task]:
    """Every task, with what its blocks set for it."""
    for task in tasks:
        merged = {**above, **task}
        inner = [one for key in ("block", "rescue", "always") for one in task.get(key, ())]
        if inner:
            kept = {key: merged[key] for key in ("delegate_to", "run_once") if key in merged}
            yield from tasks_of(inner, kept)
        else:
            yield merged


def test_the_head_is_asked_once_for_all_hosts() -> None:
    delegated = [
        (file.name, task)
        for file in (REPO / "roles").glob("*/tasks/*.yml")
        for task in tasks_of(yaml.safe_load(file.read_text()), {})
        # The play of a drain has no other host.
        if "groups.head" in str(task.get("delegate_to", "")) and file.name != "drain.yml"
    ]
    assert {"machine.yml", "ready.yml", "down.yml"} <= {name for name, _task in delegated}
    assert [(name, task["name"]) for name, task in delegated if not task.get("run_once")] == []
