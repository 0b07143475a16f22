# SPDX-License-Identifier: GPL-3.0-or-later
"""The Python of a node without a container, and its packages: Ray, torch, NCCL and others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

RAY = "ray"
# The packages whose versions all ranks have to share, with their names for people.
PACKAGES = {
    "torch": "torch",
    # NCCL's package has the version of CUDA in its name.
    "nvidia-nccl-cu12": "NCCL",
    "nvidia-nccl-cu13": "NCCL",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "verl": "verl",
}
# The node's own Python runs it. It asks by name: reading the metadata of all packages takes most of a second.
SOFTWARE_PROGRAM = f"""
import importlib.metadata, json, platform
versions = {{}}
for name in {[RAY, *PACKAGES]}:
    for distribution in importlib.metadata.distributions(name=name):
        versions.setdefault(name, distribution.version)
print(json.dumps({{"python": platform.python_version(), "packages": versions}}))
"""


@dataclass(frozen=True)
class Software:
    """The Python of a node without a container, and its packages."""

    # The path of Python, ray_node_python.
    path: str
    # The version of Python; empty if it did not answer.
    python: str = ""
    # The versions of Ray and of PACKAGES, as far as they are installed.
    packages: Mapping[str, str] = field(default_factory=dict)
    # Why Python did not answer; empty if it did.
    problem: str = ""


def parse_software(path: str, code: int, out: str, err: str) -> Software:
    """Parse what SOFTWARE_PROGRAM prints. path: of the Python that ran it."""
    try:
        # An environment may print something of its own first.
        answer = json.loads(out.strip().splitlines()[-1])
        return Software(path, str(answer["python"]), {str(k): str(v) for k, v in answer["packages"].items()})
    except (ValueError, LookupError, TypeError, AttributeError):
        error_lines = (err.strip() or out.strip()).splitlines()[-1:] or [f"exit code {code}"]
        return Software(path, problem=error_lines[0])
