# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Preflight: what is wrong with the machines, before nodes start on them.

A topic, such as the GPUs, is a file with two halves. `read` runs on the machine, with a `reader.Reader`, and returns a
frozen dataclass. `judge` and `compare` run on the controller, and return what is wrong with one machine, and what
differs between machines. `checks` has the words for both: a check, its tier, a topic, a problem. `topics` and
`all_checks` list all.

`apart` reads topics in processes of their own, each with a time limit. `machine` compares the basic answer of
machine_info with what the inventory expects. `judgement` judges all machines, and applies what the operator has
accepted. `page` writes the result as HTML.

Callers: the module machine_info uses `apart` and `machine`; the action plugin preflight_report uses `judgement` and
`page`. What machine_info imports runs on machines with Python 3.9.
"""
