#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ansible module: the source of a snapshot, and its overlays, as far as they are on this machine."""

from __future__ import annotations

DOCUMENTATION = r"""
module: source_tree
short_description: "Internal: describe the source of a snapshot, and pack it"
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Describes a release, a repository or a directory of this machine, and directories that are put over it. The action
    M(argus.verl.stage) passes that on to the program of jobs, which writes snapshots.
  - Nothing below the shared root is opened. The program reads sources there.
requirements:
  - python >= 3.11
  - pip (for a release)
  - git (for a repository)
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.internal
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
options:
  source:
    description: As in M(argus.verl.stage).
    type: str
    required: true
  overlays:
    description: As in M(argus.verl.stage).
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: The directory.
        type: str
        required: true
      to:
        description: Its destination.
        type: str
        required: true
  shared_root_source:
    description: The shared root on this machine.
    type: path
  git_token:
    description: As in M(argus.verl.stage).
    type: str
  ssh_key:
    description: As in M(argus.verl.stage).
    type: path
  archive:
    description:
      - An existing file, which gets the files of the source and the overlays as a tar. Their names begin with the
        number of their part, which ends with an empty member.
    type: path
"""

EXAMPLES = "# Internal: the roles of the collection have its tasks.\n"

import os
import tarfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.snapshot.errors import SourceError
from ansible_collections.argus.verl.plugins.module_utils.snapshot.git import Git
from ansible_collections.argus.verl.plugins.module_utils.snapshot.sources import (
    Source,
    overlay_of,
    path_below,
    source_of,
)
from ansible_collections.argus.verl.plugins.module_utils.snapshot.tree import Content


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "source": {"type": "str", "required": True},
            "overlays": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {"path": {"type": "str", "required": True}, "to": {"type": "str", "required": True}},
            },
            "shared_root_source": {"type": "path"},
            "git_token": {"type": "str", "no_log": True},
            "ssh_key": {"type": "path", "no_log": False},
            "archive": {"type": "path"},
        },
        supports_check_mode=True,
    )
    try:
        parts = list(described(module.params))
    except (SourceError, OSError) as error:
        where, what, todo = "source", str(error), "see the message"
        if isinstance(error, SourceError):
            where, what, todo = error.where, error.what, error.todo
        module.fail_json(msg=str(error), finding={"where": where, "what": what, "todo": todo})
    module.exit_json(changed=False, parts=parts)


def described(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The parts; with an archive, it is written meanwhile."""
    git = Git(given["git_token"] or "", given["ssh_key"] or "")
    root = Path(given["shared_root_source"]) if given["shared_root_source"] else None
    real = root.resolve() if root else None
    with tarfile.open(given["archive"], "w") if given["archive"] else nullcontext() as archive:
        for number, text in enumerate([given["source"], *(overlay["path"] for overlay in given["overlays"])]):
            path = path_below(text, root) or path_below(text, real)
            if path:
                yield {"place": "shared_root", "label": text, "path": path}
                continue
            part: Source | None = overlay_of(text, real) if number else source_of(text, real, git)
            if part is None:
                yield {"place": "snapshot", "label": text}
                continue
            names = ("label", "identity", "code_id", "size")
            result = {"place": "machine", **{name: getattr(part, name) for name in names}}
            if archive:
                with part.content() as content:
                    pack(archive, number, content)
                    result["facts"] = content.facts
            yield result


def pack(archive: tarfile.TarFile, number: int, content: Content) -> None:
    for name, opened in content.files:
        with opened() as file:
            member = tarfile.TarInfo(f"{number}/{name}")
            member.size = file.seek(0, os.SEEK_END)
            file.seek(0)
            archive.addfile(member, file)
    # The end of the part.
    archive.addfile(tarfile.TarInfo(str(number)))


if __name__ == "__main__":
    main()
