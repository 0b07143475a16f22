# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys of a JobSpec on the command line of ansible-playbook: ``-e retries=2 -e 'set=["data.train_batch_size=16"]'``.

Only extra variables count, so that a variable of the inventory with the name of a key changes no job.
"""

from __future__ import annotations

import json
import re
from typing import Any

import yaml
from ansible import context
from ansible.parsing.splitter import parse_kv
from ansible.utils.vars import load_extra_vars
from ansible_collections.argus.verl.plugins.plugin_utils.jobspec_keys import jobspec_keys

# Further overrides for trainer_overrides. Each -e set=… adds to those before it.
SET = "set"
# A list or a mapping as the value. Ansible would end it at its first blank.
STRUCTURE = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)=(?P<value>\s*[\[{].*)", re.DOTALL)


def extra_variables(loader: Any) -> list[dict[str, Any]]:
    """The extra variables of this run; each value of `set` in a mapping of its own. Values of other names are None.

    loader: the one of this run, which can decrypt files.
    """
    # The others are variables of playbooks that mean the same there; the roles pass them on themselves.
    keys = {*jobspec_keys(), SET} - {"shared_root", "resume_from"}
    options = [str(option) for option in context.CLIARGS.get("extra_vars") or ()]
    known = dict(load_extra_vars(loader))
    further = []
    for option in options:
        match = STRUCTURE.fullmatch(option)
        if match and match["name"] in keys:
            known[match["name"]] = structure(match["value"])
        if option.lstrip().startswith(f"{SET}="):
            further.append({SET: structure(match["value"]) if match else parse_kv(option)[SET]})
    if further:
        del known[SET]
    return [{str(name): plain(value) if name in keys else None for name, value in known.items()}, *further]


def structure(text: str) -> Any:
    """A list or mapping in YAML; the text itself, which is then reported as the wrong value, if it is none."""
    try:
        return plain(yaml.safe_load(text))
    except (yaml.YAMLError, ValueError, RecursionError):
        return text


def plain(value: Any) -> Any:
    """A value without what Ansible adds to it, such as where it comes from; dates become text, as in JSON."""
    return json.loads(json.dumps(value, default=str))
