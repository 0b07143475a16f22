# SPDX-License-Identifier: GPL-3.0-or-later
"""X"""

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
# Verbs and playbooks with different names, variables that are arguments, and options without a value.
VERBS = {"debug_bundle": "evidence"}
PLAYBOOKS = {"report": "fetch"}
ARGUMENTS = ("submission_id", "jobspec", "set")
OPTIONS = {"job_wait": "--follow"}


def inventory_arguments(sources: Sequence[str], default: Sequence[str]) -> list[str]:
    """The -i options of this run. Ansible makes their paths absolute, and fills in its default if there were none."""
    if list(sources) == list(default):
        return []
    directory = Path.cwd()
    arguments = []
    for source in sources:
        path = Path(source)
        is_below = path.is_absolute() and path.is_relative_to(directory)
        arguments += ["-i", os.path.relpath(path, directory) if is_below else source]
    return arguments


def sibling_playbook(name: str, ran: Sequence[str]) -> str:
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
        sibling_playbook(PLAYBOOKS.get(name, name), ran if isinstance(ran, (list, tuple)) else ()),
    ]
    for key, value in variables.items():
        words += ["-e", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    return shlex.join(words)
