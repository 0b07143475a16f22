# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What all modules that stage something have in common."""

from __future__ import annotations


class ModuleDocFragment:
    DOCUMENTATION = r"""
options:
  shared_root:
    description: The shared root, as the place sees it where the module runs. Nodes may see it at another path.
    type: path
    default: /private
  state:
    description:
      - V(present) makes it, once, or verifies what is there.
      - V(absent) removes it, and refuses while a job that has not ended uses it.
    type: str
    choices: [present, absent]
    default: present
  repair:
    description:
      - Put files back that no longer fit the manifest. Without it they are an error that names them.
      - Files that somebody added are never touched. They are an error with and without it.
    type: bool
    default: false
  verify:
    description:
      - How what is there is compared with its manifest.
      - V(quick) reads only files of which size or time of change are not as they were, V(full) all of them.
    type: str
    choices: [quick, full]
    default: quick
  defer:
    description:
      - Leave undone what may take longer than a moment, and return RV(ignore:deferred).
      - Set by the action plugin of this module, which then runs it detached and shows how far it is.
    type: bool
    default: false
notes:
  - What is staged appears whole or not at all, whatever happens meanwhile. Two that stage the same wait for each other
    by a lock (C(.<name>.lock)), which the kernel frees when its holder dies. It is made once.
"""
