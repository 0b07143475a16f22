# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No process of a job on the nodes that it avoids: in its processes Ray is changed, as verl has no setting for it.

Placement groups, and actors and tasks that have no place yet, get a label selector. The others are on nodes of a
placement group, or on those of `ray.nodes()`: verl's agent loops and reward loops, and TransferQueue's storage.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

# Ray's ids of the nodes. They are those of the submission: a node that is started again has another id.
VARIABLE = "ARGUS_VERL_AVOID"
# Options of an actor or a task that decide on its node; and the strategies that do not.
PLACES, FREE = ("scheduling_strategy", "placement_group", "label_selector"), (None, "DEFAULT", "SPREAD")


def ids_of(names: Iterable[str], nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """The ids of the nodes with these names. For a while, Ray lists a node twice that was started again."""
    return [node["node_id"] for node in nodes if node["node_name"] in names and node["state"] == "ALIVE"]


def selector(ids: Sequence[str]) -> dict[str, str]:
    """Ray's label selector for all nodes but these."""
    return {"ray.io/node-id": f"!in({','.join(ids)})"}


def enter() -> None:
    """Change Ray in this process, if its job avoids nodes. To be called before anything of verl is imported."""
    ids = os.environ.get(VARIABLE)
    if not ids:
        return
    import ray
    from ray.actor import ActorClass
    from ray.remote_function import RemoteFunction

    # ray.util has a function of the same name.
    module: Any = sys.modules["ray.util.placement_group"]
    avoided = ids.split(",")
    others, make_group, nodes = selector(avoided), module.placement_group, ray.nodes

    def placement_group(bundles: Any, *args: Any, **given: Any) -> Any:
        return make_group(bundles, *args, **{"bundle_label_selector": [others] * len(bundles), **given})

    def placed(remote: Callable[..., Any]) -> Callable[..., Any]:
        def _remote(self: Any, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
            if all(options.get(place) in FREE for place in PLACES):
                options["label_selector"] = others
            return remote(self, args, kwargs, **options)

        return _remote

    module.placement_group = ray.util.placement_group = placement_group
    ray.nodes = lambda: [node for node in nodes() if node["NodeID"] not in avoided]
    for kind in (ActorClass, RemoteFunction):
        kind._remote = placed(kind._remote)


def main() -> None:
    """Run a module as `python -m` does, with the arguments after its name."""
    enter()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
