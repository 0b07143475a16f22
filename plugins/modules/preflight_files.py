#!/usr/bin/python

# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: preflight_files
short_description: "Internal: write the report of preflight to the shared root"
version_added: 0.1.0
author:
  - The argus.verl contributors (@argus-verl)
description:
  - Writes C(preflight/NAME.html) and C(preflight/NAME.json) to a shared root that belongs to root. Elsewhere jobs could
    replace them, and nothing is written.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.internal
attributes:
  check_mode:
    support: none
  diff_mode:
    support: none
options:
  shared_root:
    description: The path of the shared root on the machine.
    type: str
    required: true
  name:
    description: The name of the files, without their endings.
    type: str
    required: true
  html:
    description: The page.
    type: str
    required: true
  json:
    description: The result as JSON.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Write the report
  argus.verl.preflight_files:
    shared_root: /private
    name: mvp
    html: <!DOCTYPE html>
    json: "{}"
"""

RETURN = r"""
path:
  description: The directory of the files; empty if nothing was written.
  returned: success
  type: str
  sample: /private/preflight
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.cluster.names import problems
from ansible_collections.argus.verl.plugins.module_utils.preflight.saving import save


def main() -> None:
    module = AnsibleModule(
        argument_spec={name: {"type": "str", "required": True} for name in ("shared_root", "name", "html", "json")}
    )
    name = module.params["name"]
    # It becomes a path.
    wrong = list(problems(cluster_name=name))
    if wrong:
        module.fail_json(msg=wrong[0])
    files = {f"{name}.{ending}": module.params[ending] for ending in ("html", "json")}
    module.exit_json(**save(Path(module.params["shared_root"]), files))


if __name__ == "__main__":
    main()
