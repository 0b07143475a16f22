# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands that messages suggest: playbooks for the inventories of this run, or verbs if `argus` runs this one."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible import constants, context

COLLECTION = "argus.verl."
# An environment variable that the command `argus` sets to the options of its inventory.
ARGUS_VARIABLE = "ARGUS_COMMAND"
# By playbook, the verb of `argus` with another name.
VERBS = {"debug_bundle": "evidence"}
# By verb, the playbook with another name.
PLAYBOOKS = {"report": "fetch"}
# Variables of playbooks that are arguments of `argus`, and one that is an option of another name.
ARGUMENTS = ("submission_id", "jobspec", "set")
OPTIONS = {"job_wait": "--follow"}


def inventory_arguments(sources: Sequence[str], default: Sequence[str]) -> list[str]:
    """The -i options of this run, as short paths: Ansible makes them absolute, and fills in its default."""
    if list(sources) == list(default):
        return []
    directory = Path.cwd()
    arguments = []
    for source in sources:
        path = Path(source)
        is_below = path.is_absolute() and path.is_relative_to(directory)
        arguments += ["-i", os.path.relpath(path, directory) if is_below else source]
    return arguments


def sibling_playbook(name: str, running: Sequence[str]) -> str:
    """The playbook of this name, written like those that run: with the collection's name, or as a path beside them."""
    for playbook in running:
        if playbook.startswith(COLLECTION):
            return f"{COLLECTION}{name}"
        if playbook.endswith((".yml", ".yaml")) and Path(playbook).parent.name == "playbooks":
            return str(Path(playbook).with_name(f"{name}.yml"))
    return f"playbooks/{name}.yml"


def playbook_command(name: str, variables: Mapping[str, Any]) -> str:
    """The command for a playbook of the collection, as ansible-playbook or, where `argus` runs this one, as its verb.

    variables: those of the playbook, which become arguments and options of `argus`.
    """
    if ARGUS_VARIABLE in os.environ:
        words = ["argus", VERBS.get(name, name)]
        for key in ARGUMENTS:
            words += str(variables.get(key, "")).split(",") if variables.get(key) else []
        for key, value in variables.items():
            if key not in ARGUMENTS:
                option = OPTIONS.get(key, f"--{key.replace('_', '-')}")
                words += [option, *([] if isinstance(value, bool) else [str(value)])]
        return " ".join([shlex.join(words), *filter(None, [os.environ[ARGUS_VARIABLE]])])
    arguments = context.CLIARGS
    running = arguments.get("args") or ()
    words = [
        "ansible-playbook",
        *inventory_arguments(arguments.get("inventory") or (), constants.DEFAULT_HOST_LIST if arguments else ()),
        sibling_playbook(PLAYBOOKS.get(name, name), running if isinstance(running, (list, tuple)) else ()),
    ]
    for key, value in variables.items():
        words += ["-e", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    return shlex.join(words)
