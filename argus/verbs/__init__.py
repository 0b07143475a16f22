# SPDX-License-Identifier: GPL-3.0-or-later
"""The verbs of the command, a file each: its request, what it does, and what it prints for people."""
