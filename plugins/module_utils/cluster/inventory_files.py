# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of an inventory, as Ansible finds and reads them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..argus.common.findings import WARNING, Finding

# What lies beside the hosts, and is none.
BESIDE = ("data", "jobspecs", "rewards")
# The suffixes of files in group_vars and host_vars (Ansible's YAML_FILENAME_EXTENSIONS).
VARIABLES = (".yml", ".yaml", ".json")


def source_findings(sources: Iterable[str], ignored: Iterable[str]) -> list[Finding]:
    """Find missing inventories, files of variables without effect, and JobSpecs that Ansible takes for hosts.

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
        found += shadowed(Path(source)) if "," not in source else []
    return found


def shadowed(source: Path) -> list[Finding]:
    """Files of variables that Ansible silently ignores, because a directory has the same name."""
    home = source if source.is_dir() else source.parent
    return [
        Finding(
            str(file),
            f"Ansible ignores it, because there is a directory {file.stem}/ beside it",
            "move it into that directory",
        )
        for kind in ("group_vars", "host_vars")
        for file in sorted((home / kind).glob("*"))
        if file.suffix in VARIABLES and file.is_file() and file.with_suffix("").is_dir()
    ]


def without_hosts(sources: Sequence[str]) -> list[Finding]:
    """What is wrong with inventories in which Ansible found no hosts."""
    missing = [Path(source) for source in sources if "," not in source and not Path(source).exists()]
    if not missing:
        todo = "add hosts; Ansible's warnings above tell what it could not read"
        return [Finding(", ".join(sources) or "inventory", "has no hosts", todo)]
    return [Finding(str(path), "does not exist", corrected(path)) for path in missing]


def corrected(path: Path) -> str:
    """What to do about a path after -i that does not exist."""
    wrong = next(part for part in reversed([path, *path.parents]) if not part.exists())
    near = difflib.get_close_matches(wrong.name, [file.name for file in wrong.parent.glob("*")], n=1)
    meant = wrong.parent / near[0] / path.relative_to(wrong) if near else path
    return f"did you mean {meant}?" if meant.exists() else "correct the path after -i"
