# SPDX-License-Identifier: GPL-3.0-or-later
"""Texts, findings and paths of the shared root, for all packages. Standard library only."""
