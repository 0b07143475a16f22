# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of the collection's action plugins. Their options are those that their modules document."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from importlib import import_module
from typing import Any, ClassVar

import yaml
from ansible.plugins.action import ActionBase
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable

Result = dict[str, Any]
Options = dict[str, dict[str, Any]]
FRAGMENTS = "ansible_collections.argus.verl.plugins.doc_fragments"


def documented_options(documentation: str) -> Options:
    """The argument spec of a module, from its DOCUMENTATION and the documentation fragments that this extends."""
    # PyYAML's loader in C, if it was built, is ten times as fast.
    loaded = yaml.load(documentation, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    options = argument_spec(loaded.get("options") or {})
    for fragment in loaded.get("extends_documentation_fragment", []):
        module = import_module(f"{FRAGMENTS}.{fragment.rpartition('.')[2]}")
        options |= documented_options(module.ModuleDocFragment.DOCUMENTATION)
    return options


def argument_spec(documented: Options) -> Options:
    """Documented options as an argument spec, where `suboptions` is called `options`."""
    return {
        name: {
            **{key: value for key, value in option.items() if key != "suboptions"},
            **({"options": argument_spec(option["suboptions"])} if "suboptions" in option else {}),
        }
        for name, option in documented.items()
    }


def failure(message: object, **more: Any) -> Result:
    return {"failed": True, "changed": False, "msg": printable(str(message)), **more}


class Action(ActionBase):  # type: ignore[misc]
    """Runs on the controller, without a connection. A plugin sets `options`, and implements `perform`."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True
    options: ClassVar[Options] = {}
    # Arguments of AnsibleModule such as required_if.
    relations: ClassVar[dict[str, Any]] = {}

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> Result:
        super().run(tmp, task_vars)
        variables = task_vars or {}
        return self.perform(self.arguments(variables), variables)

    def arguments(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of the task, typed and with defaults."""
        _dummy, arguments = self.validate_argument_spec(self.options, **self.relations)
        return dict(arguments)

    @abstractmethod
    def perform(self, arguments: dict[str, Any], variables: Mapping[str, Any]) -> Result:
        """Run the task, and return its result. variables: Ansible's, for the host of the task."""
