# SPDX-License-Identifier: GPL-3.0-or-later
"""Preflight: what is wrong with the machines, before nodes start on them. Python 3.9, as for all modules."""
