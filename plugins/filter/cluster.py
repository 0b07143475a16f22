# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters of plugin_utils/hosts.py and inventory/hostfile.py, which are imported when the first of them is called.

To find one filter, Ansible loads every file of filters in a collection, and compiles it with all that it imports.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

UTILS = "ansible_collections.argus.verl.plugins.plugin_utils"
MODULES = {
    **dict.fromkeys(("machine_hosts", "machine_name", "validated_hosts"), f"{UTILS}.hosts"),
    "hostfile_inventory": f"{UTILS}.inventory.hostfile",
}


def call(name: str, *arguments: Any, **named: Any) -> Any:
    return getattr(importlib.import_module(MODULES[name]), name)(*arguments, **named)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {name: functools.partial(call, name) for name in MODULES}
