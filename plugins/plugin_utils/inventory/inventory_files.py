# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of an inventory, as Ansible finds and reads them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ...module_utils.argus.common.findings import WARNING, Finding

# What lies beside the hosts, and is none.
BESIDE = ("data", "jobspecs", "rewards")


def source_findings(sources: Iterable[str], ignored: Iterable[str]) -> list[Finding]:
    """Find missing inventories, and JobSpecs that Ansible takes for hosts.

    ignored: the names that Ansible's configuration leaves out.
    """
    found = []
    for source in sources:
        # With a comma, it is a list of hosts.
        if "," not in source and not Path(source).exists():
            found.append(Finding(source, "does not exist", "correct the path of the inventory, or remove it"))
        beside = [name for name in BESIDE if name not in set(ignored) and Path(source, name).is_dir()]
        if beside:
            file = next((str(path) for path in sorted(Path(source).glob("hosts*"))), "its file with the hosts")
            what = f"Ansible takes the files in {' and '.join(beside)} for hosts"
            todo = f"pass a file instead of the directory: -i {file}"
            found.append(Finding(source, what, todo, WARNING))
    return found


def without_hosts(sources: Sequence[str]) -> list[Finding]:
    """What is wrong with inventories in which Ansible found no hosts."""
    missing = [source for source in sources if "," not in source and not Path(source).exists()]
    if not missing:
        todo = "add hosts; Ansible's warnings above tell what it could not read. In YAML, each host ends with a colon: "
        return [Finding(", ".join(sources) or "inventory", "has no hosts", f"{todo}hosts: {{gpu-0: , gpu-1: }}")]
    return [Finding(source, "does not exist", "correct the path after -i") for source in missing]
