# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters of this collection, of which each is imported when it is called.

To find one filter, Ansible loads all filter plugins of a collection with everything that they import.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

PLUGIN_UTILS = "ansible_collections.argus.verl.plugins.plugin_utils"
# The module of each filter, which is a function of the same name.
MODULES = {
    **dict.fromkeys(("machine_hosts", "machine_name", "validated_hosts"), f"{PLUGIN_UTILS}.hosts"),
    "hostfile_inventory": f"{PLUGIN_UTILS}.inventory.hostfile",
}


def call_filter(name: str, *arguments: Any, **named: Any) -> Any:
    return getattr(importlib.import_module(MODULES[name]), name)(*arguments, **named)


class FilterModule:
    def filters(self) -> dict[str, Callable[..., Any]]:
        return {name: functools.partial(call_filter, name) for name in MODULES}
