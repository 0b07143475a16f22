# SPDX-License-Identifier: GPL-3.0-or-later
"""Keys of a JobSpec on the command line of ansible-playbook: -e 'set=[...]'."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml
from ansible import context
from ansible.parsing.splitter import parse_kv
from ansible.utils.vars import load_extra_vars

# Keys of a JobSpec, and further overrides for trainer_overrides. Each -e set=… adds to those before it.
SET = "set"
JOB = "submission_id"
# A list or a mapping as the value. Ansible would end it at its first blank.
STRUCTURE = re.compile(r"\s*set=(\s*[\[{].*)", re.DOTALL)


def extra_variables(loader: Any, of_new_job: bool) -> list[dict[str, Any]]:
    """The names of the extra variables of this run, without values; and each value of `set` in a mapping of its own.

    loader: the one of this run, which can decrypt files. of_new_job: whether the variable submission_id, which all
    playbooks have, is the id of the job that is submitted, and not that of its origin.
    """
    options = [str(option) for option in context.CLIARGS.get("extra_vars") or ()]
    variables = dict(load_extra_vars(loader))
    further = []
    for option in options:
        if option.lstrip().startswith(f"{SET}="):
            match = STRUCTURE.fullmatch(option)
            further.append({SET: parse_structure(match[1]) if match else parse_kv(option)[SET]})
    if SET in variables and not further:
        further = [{SET: plain(variables[SET])}]
    job = variables.pop(JOB, None)
    named = [{SET: [f"{JOB}={job}"]}] if of_new_job and job else []
    return [{str(name): None for name in variables if name != SET}, *named, *further]


def parse_structure(text: str) -> Any:
    """A list or mapping in YAML; the text itself, which is then reported as the wrong value, if it is none."""
    try:
        return plain(yaml.safe_load(text))
    except (yaml.YAMLError, ValueError, RecursionError):
        return text


def plain(value: Any) -> Any:
    """A value without what Ansible adds to it, such as where it comes from; dates become text, as in JSON."""
    return json.loads(json.dumps(value, default=str))
