from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils.action import Action, documented_options

COLLECTION = "ansible_collections.argus.verl.plugins"
ACTIONS = sorted(path.stem for path in (Path(__file__).resolve().parents[4] / "plugins" / "action").glob("*.py"))


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_has_the_options_that_its_module_documents(name: str) -> None:
    action = importlib.import_module(f"{COLLECTION}.action.{name}").ActionModule
    if issubclass(action, Action):
        documented = documented_options(importlib.import_module(f"{COLLECTION}.modules.{name}").DOCUMENTATION)
        assert action.options == documented
