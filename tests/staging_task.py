"""A task of staging, whose machine is this one, for tests that run the real program."""

from __future__ import annotations

import os
import shutil
import tarfile
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.argus.verl.plugins.action import stage
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import Node
from program_machine import Action, Connection


class Task(Action, stage.ActionModule):
    """The action on that machine."""

    def __init__(self, directory: Path, arguments: dict[str, Any], check: bool) -> None:
        self.shell = SimpleNamespace(tmpdir=None, join_path=os.path.join)
        self._connection = SimpleNamespace(
            transport="ssh", become=Connection.become, _shell=self.shell, exec_command=Connection.exec_command
        )
        self._task = SimpleNamespace(args=arguments, check_mode=check, diff=True, async_val=0)
        self.directory = directory
        self.sent_files: list[str] = []

    def _make_tmp_path(self) -> None:
        self.directory.mkdir()
        self.shell.tmpdir = str(self.directory)

    def _remove_tmp_path(self, path: str) -> None:
        shutil.rmtree(path)
        self.shell.tmpdir = None

    def _transfer_file(self, local: str, remote: str) -> None:
        # Not the program, which runs beside a node that is down.
        if not local.endswith(".zip"):
            with tarfile.open(local) as archive:
                self.sent_files += archive.getnames()
        shutil.copy(local, remote)

    def _find_needle(self, _folder: str, name: str) -> str:
        if not Path(name).exists():
            raise stage.AnsibleError(name)
        return name.rstrip("/")


def task(node: Node, check: bool = False, **arguments: Any) -> tuple[dict[str, Any], Task]:
    """The result of a task, and the action that has run."""
    place = asdict(replace(node, images=list(node.images)))
    directory = Path(node.shared_root).parent
    action = Task(directory / "task", {"report": False, **arguments, "node": place}, check)
    with pytest.MonkeyPatch.context() as patched:
        # ActionBase itself needs a real task.
        patched.setattr(ActionBase, "run", lambda *_arguments: {})
        result = dict(action.run(None, {"inventory_dir": str(directory)}))
    if action.shell.tmpdir:
        shutil.rmtree(action.shell.tmpdir)
    return result, action


def run(kind: str, node: Node, item: Any, check: bool = False, **arguments: Any) -> tuple[dict[str, Any], list[str]]:
    """The result of a task with one item, and which files were sent."""
    result, action = task(node, check, **{kind: [item]}, **arguments)
    (staged,) = result.pop("staged", None) or [{}]
    return {**result, **staged, "diff": result.get("diff")}, action.sent_files
