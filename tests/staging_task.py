"""A task of staging, whose machine is this one, for tests that run the real program."""

from __future__ import annotations

import os
import shutil
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ansible_collections.argus.verl.plugins.plugin_utils import staging_call
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import Node
from program_machine import Action, Connection


class Task(Action):
    """A task on that machine, with its temporary directory."""

    def __init__(self, directory: Path, arguments: dict[str, Any], check: bool) -> None:
        shell = SimpleNamespace(tmpdir=str(directory), join_path=os.path.join)
        self._connection = SimpleNamespace(transport="ssh", become=Connection.become, _shell=shell)
        self._task = SimpleNamespace(args=arguments, check_mode=check, diff=True)
        self.sent_files: list[str] = []

    def _transfer_file(self, local: str, remote: str) -> None:
        self.sent_files.append(local)
        shutil.copy(local, remote)

    def _find_needle(self, _folder: str, name: str) -> str:
        return name.rstrip("/")


def run(action: Any, node: Node, check: bool = False, **arguments: Any) -> tuple[dict[str, Any], list[str]]:
    """The result of a task, and which files were sent."""
    directory = Path(node.shared_root).parent / "task"
    directory.mkdir(exist_ok=True)

    class Real(Task, action.ActionModule):  # type: ignore[name-defined, misc]
        pass

    task = Real(directory, {**arguments, "node": asdict(node)}, check)
    task.node = node
    arguments = {name: value for name, value in task._task.args.items() if name != "node"}
    try:
        result = task.stage(arguments, {"inventory_dir": str(directory.parent)})
    except staging_call.StagingError as error:
        result = staging_call.failed(error.finding)
    shutil.rmtree(directory)
    return result, [Path(file).name for file in task.sent_files]
