# SPDX-License-Identifier: Apache-2.0
"""Checks environment variables of a job that name network interfaces and adapters against those of this node."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ..common.findings import ERROR, WARNING, Finding, about
from ..common.text import one_line

ADAPTERS_DIR = Path("/sys/class/infiniband")
GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd")
GLOO_VARIABLE = "GLOO_SOCKET_IFNAME"
REMEDY = "remove it: preflight names what each node has, for ray_node_env; or set it to what all nodes have"


def network_findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Findings about variables whose interfaces or adapters this node does not have. environment: that of the job."""
    interfaces = [name for _index, name in socket.if_nameindex()]
    adapters = [path.name for path in ADAPTERS_DIR.iterdir()] if ADAPTERS_DIR.is_dir() else []
    # RCCL reads these variables as well. Nothing does without GPUs.
    severity = ERROR if any(map(os.path.exists, GPU_DEVICES)) else WARNING
    for name, present, effect, severe in (
        (
            GLOO_VARIABLE,
            interfaces,
            "gloo does not start; it knows whole names only, with commas, no ^ and no =",
            ERROR,
        ),
        ("NCCL_SOCKET_IFNAME", interfaces, "NCCL does not start", severity),
        ("NCCL_IB_HCA", adapters, "NCCL uses no InfiniBand and no RoCE there", WARNING),
    ):
        value = environment.get(name, "")
        # torch/csrc/distributed/c10d/ProcessGroupGloo.cpp: every one has to exist
        is_known = (
            {*present}.issuperset(filter(None, value.split(",")))
            if name == GLOO_VARIABLE
            else selects_any(value, present)
        )
        # gloo and NCCL treat a single character as no name.
        if len(value) > 1 and not is_known:
            problem = f"is {value}, but the node has {one_line(', '.join(sorted(present)), 200) or 'none'}: {effect}"
            yield about(f"env_vars.{name}", problem, REMEDY, severe)


def selects_any(value: str, present: Iterable[str]) -> bool:
    """Whether the value of an NCCL variable selects any of a node's names.

    It has prefixes of names, or with a leading = whole names, each with an optional port. A leading ^ excludes them.
    """
    text = value.removeprefix("^")
    parts = tuple(part.partition(":")[0] for part in text.removeprefix("=").split(",") if part)
    matched = [name in parts if text.startswith("=") else name.startswith(parts) for name in present]
    return not all(matched) if value.startswith("^") else any(matched)
