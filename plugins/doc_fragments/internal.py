# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations


class ModuleDocFragment:
    """The note of modules and filters that only this collection uses."""

    DOCUMENTATION = r"""
options: {}
notes:
  - Internal to this collection. The roles use it, and its arguments and results may change in every release.
"""
