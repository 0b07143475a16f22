# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of variables whose values become directories, labels and arguments of commands on machines.

The inventory is checked before any host is touched. The modules check again: a play with --limit skips the first check.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any

from .engine import DOCKER, PODMAN
from .ports import HIGHEST_BASE, NODE_PORTS

# The values of ray_node_rdma.
RDMA_AUTO, RDMA_ALWAYS, RDMA_NEVER = "auto", "true", "false"
# Returns the remedy for a wrong value, or "".
Check = Callable[[Any], str]


def text_check(pattern: str, remedy: str) -> Check:
    """Return a check that a value is text and matches the pattern as a whole."""
    return lambda value: "" if isinstance(value, str) and re.fullmatch(pattern, value, re.ASCII) else remedy


def list_check(pattern: str, remedy: str) -> Check:
    """Return a check that each item matches the pattern. The value is a list, or text with commas, as -e passes it."""

    def check(values: Any) -> str:
        listed = values.split(",") if isinstance(values, str) else values
        is_list = isinstance(listed, (list, tuple))
        return "" if is_list and all(re.fullmatch(pattern, str(value), re.ASCII) for value in listed) else remedy

    return check


def number_check(first: int, last: int, remedy: str) -> Check:
    """Return a check for a whole number, which may be text, from first to last."""

    def check(value: Any) -> str:
        is_number = not isinstance(value, bool) and re.fullmatch("[0-9]{1,9}", str(value), re.ASCII)
        return "" if is_number and first <= int(value) <= last else remedy

    return check


def directory_check(path: Any) -> str:
    pure = PurePosixPath(path if isinstance(path, str) else "")
    if not pure.is_absolute() or ".." in pure.parts or len(pure.parts) < 2 or "\n" in str(path) or "\0" in str(path):
        return 'set the absolute path of a directory other than /, without ".."'
    return ""


CHECKS: dict[str, Check] = {
    "cluster_engine": text_check(f"{DOCKER}|{PODMAN}", f"set {DOCKER} or {PODMAN}"),
    "cluster_name": text_check(
        "[a-z0-9][a-z0-9_.-]{0,62}",
        "use lower-case letters, digits, dots, dashes and underscores, at most 63, beginning with a letter or a digit: "
        "it is the name of a directory",
    ),
    "cluster_network": text_check(
        "[A-Za-z0-9][A-Za-z0-9_.-]{0,127}",
        "use letters, digits, dots, dashes and underscores, beginning with a letter or a digit; or host",
    ),
    "cluster_port_base": number_check(
        1024,
        HIGHEST_BASE,
        f"set a whole number from 1024 to {HIGHEST_BASE}: each node has {NODE_PORTS} ports from it on",
    ),
    "cluster_dashboard_port": number_check(1, 65535, "set a port, a whole number from 1 to 65535"),
    "cluster_state_dir": directory_check,
    "shared_root": directory_check,
    "shared_root_source": directory_check,
    # Empty is the default user.
    "ray_node_user": text_check("([0-9]{1,10}:[0-9]{1,10})?", 'set numbers, as in "61000:61000"'),
    # A negative number would be a number for Ray, too.
    **dict.fromkeys(
        ("ray_node_gpus", "ray_node_cpus"),
        lambda value: (
            "" if value is None else number_check(0, 99_999, "set a whole number, or remove it for the default")(value)
        ),
    ),
    "ray_node_rdma": lambda value: (
        ""
        if str(value).lower() in (RDMA_AUTO, RDMA_ALWAYS, RDMA_NEVER)
        else f"set {RDMA_AUTO}, {RDMA_ALWAYS} or {RDMA_NEVER}"
    ),
    "ray_node_groups": list_check(
        "[0-9]{1,10}|[a-z_][a-z0-9_-]{0,31}",
        'list numbers or names of groups in the image, as in ["44", "render"]',
    ),
    "ray_node_ulimits": list_check(
        "[a-z]+:(-1|[0-9]+)(:(-1|[0-9]+))?", 'list limits as in ["nofile:1048576:1048576"]; -1 is unlimited'
    ),
}


def problems(**values: Any) -> Iterator[str]:
    """Yield a sentence for each wrong value. values: by the names of their variables."""
    for name, value in values.items():
        if remedy := CHECKS[name](value):
            yield f"{name} is {value!r}: {remedy}"
