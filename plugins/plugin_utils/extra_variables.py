# SPDX-License-Identifier: GPL-3.0-or-later
"""What `-e` of ansible-playbook changes in a JobSpec: `-e 'set=["retries=2", "data.seed=1"]'`.

Only extra variables count, so that no variable of the inventory changes a job.
"""

from __future__ import annotations

import json
import re
from typing import Any

import yaml
from ansible import context
from ansible.parsing.splitter import parse_kv
from ansible.utils.vars import load_extra_vars

# Has keys of a JobSpec, and trainer_overrides. Each -e set=… adds to those before it.
SET_VARIABLE = "set"
ID_VARIABLE = "submission_id"
# `set` with a list or a mapping, which Ansible would end at its first blank.
SET_STRUCTURE = re.compile(r"\s*set=(\s*[\[{].*)", re.DOTALL)


def extra_variables(loader: Any, of_new_job: bool) -> list[dict[str, Any]]:
    """One mapping with the names of the other extra variables and no values, then one mapping for each value of `set`.

    loader: Ansible's, which can decrypt files. of_new_job: whether the variable submission_id is the id of the job that
    is submitted, and so a key of its JobSpec; else it is the id of the job that is submitted again.
    """
    options = [str(option) for option in context.CLIARGS.get("extra_vars") or ()]
    variables = dict(load_extra_vars(loader))
    set_values = []
    for option in options:
        if option.lstrip().startswith(f"{SET_VARIABLE}="):
            match = SET_STRUCTURE.fullmatch(option)
            set_values.append({SET_VARIABLE: parse_structure(match[1]) if match else parse_kv(option)[SET_VARIABLE]})
    if SET_VARIABLE in variables and not set_values:
        set_values = [{SET_VARIABLE: plain(variables[SET_VARIABLE])}]
    job = variables.pop(ID_VARIABLE, None)
    named = [{SET_VARIABLE: [f"{ID_VARIABLE}={job}"]}] if of_new_job and job else []
    return [{str(name): None for name in variables if name != SET_VARIABLE}, *named, *set_values]


def parse_structure(text: str) -> Any:
    """The list or mapping in a YAML text; if the YAML is wrong, the text itself, which the program then reports."""
    try:
        return plain(yaml.safe_load(text))
    except (yaml.YAMLError, ValueError, RecursionError):
        return text


def plain(value: Any) -> Any:
    """A value without Ansible's additions, such as its origin; dates become text, as JSON has none."""
    return json.loads(json.dumps(value, default=str))
