#!/usr/bin/python

# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: shared_root_trial
short_description: "Internal: write, read and lock on the shared root"
version_added: 0.1.0
author:
  - The argus.verl contributors (@argus-verl)
description:
  - All machines meet in one directory on the shared root, C(.argus-verl-trial-TOKEN) in C(user) or directly in it.
  - With O(state=written), writes a file. The first of O(hosts) holds locks from then on.
  - With O(state=compared), looks for the files of the others, and tries to get the locks.
  - With O(state=removed), removes the directory, and those of interrupted runs. This ends the holder of the locks.
  - Works as the user of the nodes, never as root.
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
    choices: [written, compared, removed]
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
  hosts:
    description: The names of all machines.
    type: list
    elements: str
    required: true
"""

EXAMPLES = "# Internal: the roles of the collection have its tasks.\n"

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.preflight.trial import Trial, TrialError
from ansible_collections.argus.verl.plugins.module_utils.privileges import failure, without_root


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["written", "compared", "removed"], "required": True},
            "shared_root": {"type": "str", "required": True},
            "token": {"type": "str", "required": True, "no_log": False},
            "host": {"type": "str", "required": True},
            "hosts": {"type": "list", "elements": "str", "required": True},
        }
    )
    state, shared_root, token, host, hosts = (module.params[name] for name in module.argument_spec)

    def work() -> dict[str, Any]:
        try:
            return {"trial": getattr(Trial(Path(), token, host, hosts), state)()}
        except TrialError as error:
            return failure(f"{shared_root}: {error}")
        except OSError as error:
            return failure(f"{error.strerror or error} ({Path(shared_root, error.filename or '')})")

    module.exit_json(**without_root(Path(shared_root), work))


if __name__ == "__main__":
    main()
