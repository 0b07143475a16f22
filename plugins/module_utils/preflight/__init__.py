# SPDX-License-Identifier: GPL-3.0-or-later
"""Preflight: what is wrong with the machines, before nodes start. `machine` runs on each, `judgement` compares them."""
