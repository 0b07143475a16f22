# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands that messages suggest: for the inventories of this run, with playbooks named as in this run.

Where the command argus runs them, they are its verbs.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible import constants, context

COLLECTION = "argus.verl."
# Set by the command argus: the options of its inventory.
ARGUS = "ARGUS_COMMAND"
# The verbs whose name is not that of their playbook, and how options are written that are no variable's value.
VERBS = {"debug_bundle": "evidence"}
PLAYBOOKS = {"report": "fetch"}
ARGUMENTS = ("submission_id", "jobspec")
OPTIONS = {"job_follow": "--follow"}


def inventory_arguments(given: Sequence[str], default: Sequence[str]) -> list[str]:
    """The -i options of this run. Ansible makes their paths absolute, and fills in its default if there were none."""
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
    """The playbook of that name, written in the same way as the playbook that runs."""
    for playbook in ran:
        if playbook.startswith(COLLECTION):
            return f"{COLLECTION}{name}"
        if playbook.endswith((".yml", ".yaml")) and Path(playbook).parent.name == "playbooks":
            return str(Path(playbook).with_name(f"{name}.yml"))
    return f"playbooks/{name}.yml"


def playbook_command(name: str, variables: Mapping[str, Any]) -> str:
    """The command that runs a playbook of the collection for the inventories of this run.

    variables: of the playbook; under the command argus, its arguments and options.
    """
    if ARGUS in os.environ:
        words = ["argus", VERBS.get(name, name)]
        for key in ARGUMENTS:
            words += str(variables.get(key, "")).split(",") if variables.get(key) else []
        for key, value in variables.items():
            if key not in ARGUMENTS:
                option = OPTIONS.get(key, f"--{key.replace('_', '-')}")
                words += [option, *([] if isinstance(value, bool) else [str(value)])]
        return " ".join([shlex.join(words), *filter(None, [os.environ[ARGUS]])])
    arguments = context.CLIARGS
    ran = arguments.get("args") or ()
    words = [
        "ansible-playbook",
        *inventory_arguments(arguments.get("inventory") or (), constants.DEFAULT_HOST_LIST if arguments else ()),
        sibling(PLAYBOOKS.get(name, name), ran if isinstance(ran, (list, tuple)) else ()),
    ]
    for key, value in variables.items():
        words += ["-e", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    return shlex.join(words)
