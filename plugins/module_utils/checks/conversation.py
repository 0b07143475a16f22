# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The roles of a conversation, for every check of its messages.

It travels into Ray tasks by value with the other checks, so it imports nothing from outside this package.
"""

from __future__ import annotations

from .common import WARNING

ROLES = ("system", "developer", "user", "assistant", "tool")
# A warning: the chat templates of some models accept further roles.
UNKNOWN_ROLE_SEVERITY = WARNING
