# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The roles of messages in a conversation."""

from __future__ import annotations

from ..common.findings import WARNING

# The roles that chat templates know. They render other roles as plain text.
ROLES: tuple[str, ...] = ("system", "developer", "user", "assistant", "tool")
UNKNOWN_ROLE_SEVERITY = WARNING
