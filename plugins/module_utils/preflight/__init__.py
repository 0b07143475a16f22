# SPDX-License-Identifier: GPL-3.0-or-later
"""Preflight: what is wrong with the machines, before nodes start. `checks` has the table of all checks.

Checks of one machine run on it, with Python 3.9, from `machine`. `judgement` compares all machines on the controller.
"""
