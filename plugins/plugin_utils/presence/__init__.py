# SPDX-License-Identifier: GPL-3.0-or-later
"""Which nodes take part in a run of a playbook, and which of them Ray reports."""
