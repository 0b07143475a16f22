# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys of a JobSpec on the command line of ansible-playbook: ``-e retries=2 -e 'set=["data.train_batch_size=16"]'``.

Only extra variables count, so that a variable of the inventory with the name of a key changes no job.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

import yaml
from ansible import context
from ansible.parsing.splitter import parse_kv
from ansible.utils.vars import load_extra_vars
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable
from ansible_collections.argus.verl.plugins.module_utils.argus.jobspec.options import (
    OPTIONS,
    converted,
    merged_overrides,
    with_defaults,
)

# Further overrides for trainer_overrides. Each -e set=… adds to those before it.
SET = "set"
OVERRIDES = "trainer_overrides"
# Variables of playbooks that mean the same there; the roles pass them on themselves.
VARIABLES = ("shared_root", "resume_from")
KEYS = {*OPTIONS, SET} - {*VARIABLES}
# Variables of the collection: those of roles, and the others that playbooks have.
PREFIXES = ("job_", "cluster_", "ray_", "staging_", "preflight_", "ansible_")
OTHERS = {*VARIABLES, "jobspec", "shared_root_source", "allow_disruption"}
# A list or a mapping as the value. Ansible would end it at its first blank.
STRUCTURE = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)=(?P<value>\s*[\[{].*)", re.DOTALL)
NAME = re.compile(r"[A-Za-z_]\w*")
# Of the trainer: after a blank in the value of `set`, Ansible takes it for a variable of its own.
OVERRIDE = re.compile(r"[+~]|\w+\.")
# Of "retrys" and "retries". Most names with a lower ratio are other words.
SIMILAR = 0.75


def extra_variables(loader: Any) -> list[dict[str, Any]]:
    """The extra variables of this run; each value of `set` in a mapping of its own. Values of other names are None.

    loader: the one of this run, which can decrypt files.
    """
    options = [str(option) for option in context.CLIARGS.get("extra_vars") or ()]
    known = dict(load_extra_vars(loader))
    further = []
    for option in options:
        match = STRUCTURE.fullmatch(option)
        if match and match["name"] in KEYS:
            known[match["name"]] = structure(match["value"])
        if option.lstrip().startswith(f"{SET}="):
            further.append({SET: structure(match["value"]) if match else parse_kv(option)[SET]})
    if further:
        del known[SET]
    return [{str(name): plain(value) if name in KEYS else None for name, value in known.items()}, *further]


def structure(text: str) -> Any:
    """A list or mapping in YAML; the text itself, which is then reported as the wrong value, if it is none."""
    try:
        return plain(yaml.safe_load(text))
    except (yaml.YAMLError, ValueError, RecursionError):
        return text


def plain(value: Any) -> Any:
    """A value without what Ansible adds to it, such as where it comes from; dates become text, as in JSON."""
    return json.loads(json.dumps(value, default=str))


def with_command_line(given: Any, variables: Iterable[Mapping[str, Any]], without: Iterable[str] = ()) -> Any:
    """A JobSpec with the keys of the command line, which replace its own; mappings are merged key by key.

    without: keys that are variables of the playbook.
    """
    for each in variables:
        chosen = {key: converted(key, value) for key, value in each.items() if key in OPTIONS and key in KEYS}
        if SET in each:
            further = [each[SET]] if isinstance(each[SET], str) else each[SET]
            chosen[OVERRIDES] = merged_overrides(chosen.get(OVERRIDES) or [], further)
        chosen = {key: value for key, value in chosen.items() if key not in without}
        if chosen:
            given = with_defaults(chosen, given) if isinstance(given, Mapping) else given
    return given


def misspelt(variables: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """Findings for extra variables that nothing reads and that resemble a key of a JobSpec."""
    found = []
    for name in dict.fromkeys(name for each in variables for name in each):
        if OVERRIDE.match(name):
            listed = f'-e \'{SET}=["data.train_batch_size=16", "{printable(name)}=…"]\''
            todo = f"pass all overrides as one list: {listed}"
            found.append(Finding(f"-e {printable(name)}", "is an override, and no variable", todo, key=name))
        if name in KEYS or name in OTHERS or name.startswith(PREFIXES) or not NAME.fullmatch(name):
            continue
        near = difflib.get_close_matches(name.lower(), KEYS, n=1, cutoff=SIMILAR)
        if near:
            todo = f'did you mean "{near[0]}"? Choose another name for a variable of your own'
            found.append(Finding(f"-e {printable(name)}", "is not a key of a JobSpec", todo, key=name))
    return found
