# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options of all modules that stage."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  shared_root:
    description: The path of the shared root on the host that runs the module. It may differ from the path in nodes.
    type: path
    default: /private
  state:
    description:
      - V(present) creates the object once, and verifies it afterwards.
      - V(absent) removes it, and refuses to while a job that has not ended uses it.
    type: str
    choices: [present, absent]
    default: present
  repair:
    description:
      - Restore files that differ from the manifest. Without it, they are an error.
      - Files that are not in the manifest are never changed. They are an error with and without this option.
    type: bool
    default: false
  verify:
    description:
      - How the object is compared with its manifest.
      - V(quick) reads only files whose size or time of change differs, V(full) reads all files.
    type: str
    choices: [quick, full]
    default: quick
  defer:
    description:
      - Skip work that may take long, and return RV(ignore:deferred).
      - Set by the action plugin of this module, which then runs the module detached and shows its progress.
    type: bool
    default: false
notes:
  - A staged object appears completely or not at all, even after an interruption. Two runs that stage the same object
    wait for each other with a lock (C(.<name>.lock)), which the kernel releases when its holder dies.
"""
