# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands that we tell people to run next: on the inventories that they gave, with playbooks where theirs was."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible import constants, context

COLLECTION = "argus.verl."


def inventory_arguments(given: Sequence[str], default: Sequence[str]) -> list[str]:
    """The -i that were given; Ansible has made absolute paths of them, and put its default there if there were none."""
    if list(given) == list(default):
        return []
    here = Path.cwd()
    arguments = []
    for source in given:
        path = Path(source)
        near = path.is_absolute() and path.is_relative_to(here)
        arguments += ["-i", os.path.relpath(path, here) if near else source]
    return arguments


def sibling(name: str, ran: Sequence[str]) -> str:
    """Our playbook of that name, said the way another one of ours was said."""
    for playbook in ran:
        if playbook.startswith(COLLECTION):
            return f"{COLLECTION}{name}"
        if playbook.endswith((".yml", ".yaml")) and Path(playbook).parent.name == "playbooks":
            return str(Path(playbook).with_name(f"{name}.yml"))
    return f"playbooks/{name}.yml"


def playbook_command(name: str, variables: Mapping[str, Any]) -> str:
    """The line that runs a playbook of ours, on the inventories of this run."""
    arguments = context.CLIARGS
    ran = arguments.get("args") or ()
    words = [
        "ansible-playbook",
        *inventory_arguments(arguments.get("inventory") or (), constants.DEFAULT_HOST_LIST if arguments else ()),
        sibling(name, ran if isinstance(ran, (list, tuple)) else ()),
    ]
    for key, value in variables.items():
        words += ["-e", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    return shlex.join(words)
