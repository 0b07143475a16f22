"""No task asks one host for each of many: its sshd refuses when too many sessions come at once (MaxStartups)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

REPO = Path(__file__).resolve().parents[3]
HEADS = ("groups.head",)
INCLUDES = ("import_tasks", "include_tasks", "import_role", "include_role")
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


def called(task: Task, directory: Path) -> list[Path]:
    """The files whose tasks a task runs."""
    for name in INCLUDES:
        given = task.get(f"ansible.builtin.{name}")
        if isinstance(given, dict):
            role = REPO / "roles" / given["name"].rpartition(".")[2] / "tasks"
            return [role / f"{given.get('tasks_from', 'main')}.yml"]
        if given:
            # The runtime is part of some names.
            pattern = given.replace("{{ ray_node_runtime }}", "*")
            return sorted(directory.glob(pattern))
    return []


def played_on_many() -> Iterator[tuple[Path, Task]]:
    """The tasks of all plays with more hosts than the head."""
    plays = [play for file in sorted((REPO / "playbooks").glob("*.yml")) for play in yaml.safe_load(file.read_text())]
    files, seen = [], set()
    for play in plays:
        if play.get("hosts", "head") != "head":
            roles = [{"ansible.builtin.import_role": {"name": name}} for name in play.get("roles", [])]
            files += [path for task in [*roles, *tasks_of(play.get("tasks", []), {})] for path in called(task, REPO)]
    while files:
        file = files.pop()
        if file in seen:
            continue
        seen.add(file)
        for task in tasks_of(yaml.safe_load(file.read_text()), {}):
            files += called(task, file.parent)
            yield file, task


def test_the_head_is_asked_once_for_all_hosts() -> None:
    found = list(played_on_many())
    asked = [(file, task) for file, task in found if any(head in str(task.get("delegate_to", "")) for head in HEADS)]
    # What is searched is there: the token, the wait for the cluster, and the end of its jobs.
    assert {file.name for file, _task in asked} >= {"machine.yml", "ready.yml", "missing.yml", "status.yml", "down.yml"}
    often = [f"{file.relative_to(REPO)}: {task['name']}" for file, task in asked if not task.get("run_once")]
    assert often == []
