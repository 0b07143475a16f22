# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations


class ModuleDocFragment:
    """The options of models, datasets and snapshots. Types and defaults are those of the program."""

    DOCUMENTATION = r"""
options:
  state:
    description:
      - V(present) creates it once, or verifies it if it exists.
      - V(absent) removes it, unless a job that has not ended uses it.
    type: str
    choices: [present, absent]
    default: present
  repair:
    description:
      - Restore files that no longer fit the manifest. Without it, they are an error that names them.
      - Files that were added are never changed, and are always an error.
    type: bool
    default: false
  verify:
    description:
      - How existing files are compared with their manifest.
      - V(quick) reads only files whose size or modification time has changed, V(full) all of them.
    type: str
    choices: [quick, full]
    default: quick
notes:
  - A target appears completely or not at all, even if the process is killed. Processes that stage the same target wait
    for each other at a lock (C(.<name>.lock)), which the kernel frees if its holder dies. It is created only once.
"""
