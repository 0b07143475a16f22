# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names and paths that become directories, labels and arguments of commands on machines.

The inventory is checked before any host is touched. The modules check again: a play with --limit skips the first check.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any

from .devices import ALWAYS, AUTO, NEVER
from .engine import DOCKER, PODMAN
from .ports import HIGHEST_BASE, NODE_PORTS

# A directory below cluster_state_dir, a label, and the beginning of the name of a network.
CLUSTER = re.compile(r"[a-z0-9][a-z0-9_.-]{0,62}")
# Docker's rule for the names of networks.
NETWORK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
USER = re.compile(r"[0-9]{1,10}:[0-9]{1,10}")
GROUP = re.compile(r"[0-9]{1,10}|[a-z_][a-z0-9_-]{0,31}")
ULIMIT = re.compile(r"[a-z]+:(-1|[0-9]+)(:(-1|[0-9]+))?")


def cluster_problem(name: Any) -> str:
    """Why it is not the name of a cluster, or nothing."""
    if isinstance(name, str) and CLUSTER.fullmatch(name):
        return ""
    return (
        "use lower-case letters, digits, dots, dashes and underscores, at most 63, beginning with a letter or a digit: "
        "it is the name of a directory"
    )


def network_problem(name: Any) -> str:
    """Why it is not the name of a container network, or nothing."""
    if isinstance(name, str) and NETWORK.fullmatch(name):
        return ""
    return "use letters, digits, dots, dashes and underscores, beginning with a letter or a digit; or host"


def directory_problem(path: Any) -> str:
    """Why it is not a directory of its own, or nothing."""
    pure = PurePosixPath(path if isinstance(path, str) else "")
    if not pure.is_absolute() or ".." in pure.parts or len(pure.parts) < 2 or "\n" in str(path) or "\0" in str(path):
        return 'set the absolute path of a directory other than /, without ".."'
    return ""


def user_problem(user: Any) -> str:
    """Why it is not the user of nodes, or nothing; empty is the default user."""
    return "" if isinstance(user, str) and (not user or USER.fullmatch(user)) else 'set numbers, as in "61000:61000"'


def port_base_problem(base: Any) -> str:
    """Why it is not the first port of a cluster, or nothing."""
    if _whole_number(base) and 1024 <= int(base) <= HIGHEST_BASE:
        return ""
    return f"set a whole number from 1024 to {HIGHEST_BASE}: each node has {NODE_PORTS} ports from it on"


def dashboard_port_problem(port: Any) -> str:
    """Why it is not a port, or nothing."""
    return "" if _whole_number(port) and 1 <= int(port) <= 65535 else "set a port, a whole number from 1 to 65535"


def _whole_number(value: Any) -> bool:
    """Also as text, which is what -e passes."""
    return not isinstance(value, bool) and re.fullmatch("[0-9]{1,9}", str(value), re.ASCII) is not None


def groups_problem(groups: Any) -> str:
    """Why these are not groups, or nothing."""
    return "" if _all_match(GROUP, groups) else 'list numbers or names of groups in the image, as in ["44", "render"]'


def ulimits_problem(ulimits: Any) -> str:
    """Why these are not limits, or nothing."""
    return "" if _all_match(ULIMIT, ulimits) else 'list limits as in ["nofile:1048576:1048576"]; -1 is unlimited'


def _all_match(pattern: re.Pattern[str], values: Any) -> bool:
    listed = values.split(",") if isinstance(values, str) else values
    return isinstance(listed, (list, tuple)) and all(pattern.fullmatch(str(value)) for value in listed)


def rdma_problem(asked: Any) -> str:
    """Why it is not a choice, or nothing."""
    return "" if str(asked).lower() in (AUTO, ALWAYS, NEVER) else f"set {AUTO}, {ALWAYS} or {NEVER}"


CHECKS: dict[str, Callable[[Any], str]] = {
    "cluster_engine": lambda engine: "" if engine in (DOCKER, PODMAN) else f"set {DOCKER} or {PODMAN}",
    "cluster_name": cluster_problem,
    "cluster_network": network_problem,
    "cluster_port_base": port_base_problem,
    "cluster_dashboard_port": dashboard_port_problem,
    "cluster_state_dir": directory_problem,
    "shared_root": directory_problem,
    "shared_root_source": directory_problem,
    "ray_node_user": user_problem,
    "ray_node_rdma": rdma_problem,
    "ray_node_groups": groups_problem,
    "ray_node_ulimits": ulimits_problem,
}


def problems(**values: Any) -> Iterator[str]:
    """The problems of values, by the name of their variable, as one sentence each."""
    for name, value in values.items():
        problem = CHECKS[name](value)
        if problem:
            yield f"{name} is {value!r}: {problem}"
