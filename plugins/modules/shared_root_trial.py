#!/usr/bin/python

# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: shared_root_trial
short_description: "Internal: write, read, lock and measure on the shared root"
version_added: 0.1.0
author:
  - The argus.verl contributors (@argus-verl)
description:
  - All machines meet in one directory on the shared root, C(.argus-verl-trial-TOKEN) in C(user) or directly in it.
  - With O(state=written), writes a file, and measures small writes. With O(holds_locks), holds locks for O(lifetime).
  - With O(state=seen), looks for the files of the other machines and tries to get the locks.
  - With O(state=rated), writes and reads O(mib) of data.
  - With O(state=removed), removes the directory, those of interrupted runs, and the process that holds locks.
  - Works as the user of the nodes, never as root, and follows no link.
requirements:
  - Python 3.9 or later on the machine
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.internal
attributes:
  check_mode:
    support: none
  diff_mode:
    support: none
options:
  state:
    description: What to do.
    type: str
    choices: [written, seen, rated, removed]
    required: true
  shared_root:
    description: The path of the shared root on the machine.
    type: str
    required: true
  token:
    description: A random name of the trial, of 16 hexadecimal digits or more.
    type: str
    required: true
  host:
    description: The name of this machine.
    type: str
    required: true
  others:
    description: The names of the machines to look for.
    type: list
    elements: str
    default: []
  holds_locks:
    description: Whether this machine is the one that holds the locks.
    type: bool
    default: false
  lifetime:
    description: After how many seconds the process with the locks ends by itself.
    type: int
    default: 300
  wait:
    description: How many seconds to look for the files of others. NFS may remember for a minute that there is none.
    type: float
    default: 70
  stage:
    description: The name of the measurement.
    type: str
    default: alone
  mib:
    description: How much data to write, and to read.
    type: int
    default: 64
  start_at:
    description: When to begin, in seconds since 1970. 0 for at once.
    type: float
    default: 0
  reads:
    description: Whose file to read. Empty for none.
    type: str
    default: ""
  process:
    description: The RV(process) that O(state=written) has returned.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Write
  argus.verl.shared_root_trial:
    state: written
    shared_root: /private
    token: 0123456789abcdef
    host: "{{ inventory_hostname }}"
"""

RETURN = r"""
written:
  description: The file's owner as this machine sees it, and the times of small writes in milliseconds.
  returned: with O(state=written)
  type: dict
process:
  description: The process that holds locks, and RV(ignore:held), the kinds that it got.
  returned: with O(state=written) and O(holds_locks)
  type: dict
seen:
  description: For each of the other machines, after how many seconds its file was there, and its owner.
  returned: with O(state=seen)
  type: dict
locks:
  description: By kind of lock, V(held) if another machine has it, V(free) if this machine got it as well.
  returned: with O(state=seen)
  type: dict
rates:
  description: The size, begin and end of writing and reading.
  returned: with O(state=rated)
  type: dict
"""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.network.background import Background
from ansible_collections.argus.verl.plugins.module_utils.privileges import failure, without_root
from ansible_collections.argus.verl.plugins.module_utils.storage.locks import contend, hold, release
from ansible_collections.argus.verl.plugins.module_utils.storage.rates import read_rate, write_rate
from ansible_collections.argus.verl.plugins.module_utils.storage.trial import TrialError, look, remove, write


def written(root: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    answer = {"written": asdict(write(root, asked["token"], asked["host"]))}
    return {**answer, "locks": hold(root, asked["token"], asked["lifetime"])} if asked["holds_locks"] else answer


def seen(root: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    found = look(root, asked["token"], asked["others"], asked["wait"])
    locks = {} if asked["holds_locks"] else contend(root, asked["token"])
    return {"seen": {host: asdict(each) for host, each in found.items()}, "locks": locks}


def rated(root: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    token, stage, mib = asked["token"], asked["stage"], asked["mib"]
    rates = {"write": asdict(write_rate(root, token, f"{asked['host']}.{stage}", mib, asked["start_at"]))}
    if asked["reads"]:
        read = read_rate(root, token, f"{asked['reads']}.{stage}", mib)
        if read:
            rates["read"] = asdict(read)
    return {"rates": rates}


def removed(root: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    if asked["process"]:
        release(Background(int(asked["process"]["pid"]), int(asked["process"]["started"])))
    remove(root, asked["token"])
    return {}


STATES = {"written": written, "seen": seen, "rated": rated, "removed": removed}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": list(STATES), "required": True},
            "shared_root": {"type": "str", "required": True},
            "token": {"type": "str", "required": True, "no_log": False},
            "host": {"type": "str", "required": True},
            "others": {"type": "list", "elements": "str", "default": []},
            "holds_locks": {"type": "bool", "default": False},
            "lifetime": {"type": "int", "default": 300},
            "wait": {"type": "float", "default": 70},
            "stage": {"type": "str", "default": "alone"},
            "mib": {"type": "int", "default": 64},
            "start_at": {"type": "float", "default": 0},
            "reads": {"type": "str", "default": ""},
            "process": {"type": "dict", "default": {}},
        }
    )
    asked = module.params
    root = Path(asked["shared_root"])

    def work() -> dict[str, Any]:
        try:
            return STATES[asked["state"]](root, asked)
        except TrialError as error:
            return failure(str(error))
        except OSError as error:
            return failure(f"{error.strerror or error} ({error.filename or root})")

    module.exit_json(**without_root(root, work))


if __name__ == "__main__":
    main()
