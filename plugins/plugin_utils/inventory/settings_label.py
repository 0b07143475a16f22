# SPDX-License-Identifier: GPL-3.0-or-later
"""The label of a container or process with the settings of its node, and which of them have changed since."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from ...module_utils.argus.common.text import one_line
from .nodes import HEAD, NodePlan

# The most characters of a value, and the most settings, in a message.
MAX_VALUE_CHARS, MAX_SETTINGS = 60, 4
# Before the name of a variable in ray_node_env.
ENVIRONMENT_PREFIX = "ray_node_env "
SETTING_PREFIXES = ("cluster_", "ray_node_", "shared_root")
# Not in the label: with another of the first three there is nothing to compare, and the last has a key per variable.
OMITTED_SETTINGS = {"cluster_name", "cluster_engine", "ray_node_runtime", "ray_node_env"}


def settings_label(plan: NodePlan) -> str:
    """The settings as JSON, by their variables. Values of ray_node_env are hashed, as they may be secrets."""
    settings = plan.settings
    names = {attribute.name for attribute in fields(settings) if attribute.name.startswith(SETTING_PREFIXES)}
    values: dict[str, object] = {
        **{name: value for name in names - OMITTED_SETTINGS if (value := getattr(settings, name)) != ""},
        "cluster_images": plan.image,
        "ray_node_accelerator": plan.accelerator,
        "ray_node_cpus": plan.cpus,
        "ray_node_gpus": plan.gpus,
        "ray_node_rdma": plan.rdma,
        "ray_node_shm_gib": float(settings.ray_node_shm_gib),
        "ray_node_user": plan.user,
        # These follow from the other nodes of the machine.
        "its role": plan.role,
        "its GPUs": plan.gpu_ids and list(plan.gpu_ids),
        "its number on its machine": plan.ports.number,
    }
    if plan.role != HEAD:
        del values["cluster_dashboard_port"]
        values["the head's address"] = settings.head_address
    if settings.cluster_network == "host":
        values["ray_node_address"] = settings.address
    for name, value in settings.ray_node_env.items():
        values[f"{ENVIRONMENT_PREFIX}{name}"] = hashlib.sha256(str(value).encode()).hexdigest()[:16]
    return json.dumps(values, sort_keys=True)


def changed_settings(before: str | None, now: str) -> str:
    """The settings that differ, such as `ray_node_gpus 4 → 2`; "" if the label before cannot be read.

    before: the label of the running container or process, which may be from another release of this collection.
    """
    try:
        old = json.loads(before or "")
    except (ValueError, RecursionError):
        return ""
    if not isinstance(old, dict):
        return ""
    changes = list(_change_texts(old, json.loads(now)))
    more = f" and {len(changes) - MAX_SETTINGS} more" if len(changes) > MAX_SETTINGS else ""
    return f"{', '.join(changes[:MAX_SETTINGS])}{more}"


def _change_texts(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted({*old, *new}):
        if name in old and name in new and old[name] == new[name]:
            continue
        if not name.startswith(ENVIRONMENT_PREFIX):
            yield f"{one_line(name)} {_value_text(old.get(name))} → {_value_text(new.get(name))}"
        elif name not in new:
            yield f"{one_line(name)} removed"
        else:
            yield f"{one_line(name)} {'changed' if name in old else 'added'}"


def _value_text(value: object) -> str:
    """A value as YAML users write it; "-" for one that is not set."""
    if value is None:
        return "-"
    text = value if isinstance(value, str) else json.dumps(value)
    return one_line(text, MAX_VALUE_CHARS) or '""'
