# SPDX-License-Identifier: GPL-3.0-or-later
"""Preflight: what is wrong with the machines, before nodes start on them.

On the machine, the module machine_info reads it with `cluster.probe`, and calls `machine`, which finds what is wrong.
On the controller, the action preflight_report calls `judgement`, which compares the machines and applies what the
operator accepts. `checks` has the words for both, `table` all checks. `trial` writes to the shared root, as
machine_info does when it is asked for a step of it.

What these modules import runs on machines with Python 3.9.
"""
