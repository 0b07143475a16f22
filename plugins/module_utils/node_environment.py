# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment of a node, for modules that run on it.

A module in a container inherits the environment of the container. One that runs on the host of a node without a
container has that of the connection, which is nearly empty: it takes the node's own, which `cluster_up.yml` wrote.

Modules call `enter_node` before they look at anything. It runs with Python 3.9 and newer.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# The directory of the node; it may begin with "~".
ENTER = "ARGUS_VERL_ENTER"
ORDER = "node.json"


def enter_node(fail: Callable[..., Any]) -> None:
    """Take over the environment of the node that the task names. fail: `fail_json` of the module."""
    directory = os.environ.pop(ENTER, "")
    if not directory:
        return
    file = Path(directory).expanduser() / ORDER
    try:
        environment = dict(json.loads(file.read_bytes())["environment"])
    except FileNotFoundError:
        fail(msg=f"This node is not up: {file} does not exist. cluster_up.yml brings the cluster up", node_is_down=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        fail(msg=f"{file} cannot be read ({error}). cluster_up.yml writes it again", node_is_down=True)
    else:
        os.environ.update(environment)
        sys.path[:0] = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
