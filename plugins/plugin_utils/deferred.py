# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Filters whose code is imported when they are first called.

To find one filter, Ansible loads every file of filters in a collection, and compiles it with all that it imports. That
took half a second at the start of each playbook, for 130 modules of which it needs a few.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable
from typing import Any

Filter = Callable[..., Any]
PACKAGE = "ansible_collections.argus.verl.plugins.plugin_utils.filters"


def deferred(module: str, names: Iterable[str]) -> dict[str, Filter]:
    """Filters by name; their functions are in FILTERS of a module of the package filters."""
    return {name: functools.partial(call, module, name) for name in names}


def call(module: str, name: str, *arguments: Any, **named: Any) -> Any:
    return importlib.import_module(f"{PACKAGE}.{module}").FILTERS[name](*arguments, **named)
