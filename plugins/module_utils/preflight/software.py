# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Python of a node without a container, and its packages. A container has those of its image."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ..cluster.state import ROCKSDB
from .checks import Compared, Context, Expectation, Problem, Topic
from .reading import Reader

RAY = "ray"
# Earlier releases of Ray ignore the token: everyone who reaches the head runs code on it.
RAY_WITH_TOKENS = (2, 52)
# Earlier ones have no tables that outlive their head.
RAY_WITH_TABLES = (2, 57)
PACKAGES = {
    "torch": "torch",
    # NCCL's package has the version of CUDA in its name.
    "nvidia-nccl-cu12": "NCCL",
    "nvidia-nccl-cu13": "NCCL",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "verl": "verl",
}
# By name: reading the metadata of all packages takes most of a second.
PROGRAM = f"""
import importlib.metadata, json, platform
found = {{}}
for name in {[RAY, *PACKAGES]}:
    for each in importlib.metadata.distributions(name=name):
        found.setdefault(name, each.version)
print(json.dumps({{"python": platform.python_version(), "packages": found}}))
"""


@dataclass(frozen=True)
class Software:
    """path: of Python; empty where nodes are containers. problem: why Python did not answer."""

    path: str = ""
    python: str = ""
    packages: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


def read(reader: Reader, expected: Expectation) -> Software:
    path = expected.python
    if not path:
        return Software()
    answer = reader.run(path, "-c", PROGRAM)
    try:
        # An environment may print something of its own first.
        found = json.loads(answer.out.strip().splitlines()[-1])
        return Software(path, str(found["python"]), {str(k): str(v) for k, v in found["packages"].items()})
    except (ValueError, LookupError, TypeError, AttributeError):
        said = (answer.err.strip() or answer.out.strip()).splitlines()[-1:] or [f"exit code {answer.code}"]
        return Software(path, problem=said[0])


def is_since(ray: str, release: tuple[int, int]) -> bool:
    """Whether a Ray is of a release or a later one. One that was built by hand may have another form, and passes."""
    found = re.match(r"(\d+)\.(\d+)", ray)
    return not found or (int(found[1]), int(found[2])) >= release


def judge(software: Software, context: Context) -> Iterator[Problem]:
    if not software.path:
        return
    if software.problem:
        yield Problem("software.python", f"{software.path} does not run: {software.problem}")
        return
    ray = software.packages.get(RAY, "")
    if not ray:
        yield Problem("software.python", f"Ray is not installed for {software.path}")
    elif not is_since(ray, RAY_WITH_TOKENS):
        what = f"{software.path} has Ray {ray}, which has no tokens"
        yield Problem("software.python", what, "install Ray 2.57 or later")
    elif context.expected.head_storage == ROCKSDB and not is_since(ray, RAY_WITH_TABLES):
        yield Problem(
            "software.python",
            f"{software.path} has Ray {ray}, whose head keeps no tables",
            "install Ray 2.57 or later, or set cluster_head_storage: memory, with which jobs end with their head",
        )


def compared(software: Software, _context: Context) -> Iterator[Compared]:
    yield Compared("software.ray", "Python", software.python)
    yield Compared("software.ray", "Ray", software.packages.get(RAY, ""))
    for name, title in PACKAGES.items():
        # The head has no need of them.
        yield Compared("software.packages", title, software.packages.get(name, ""))


TOPIC: Topic[Software] = Topic("software", read, judge, compared)
