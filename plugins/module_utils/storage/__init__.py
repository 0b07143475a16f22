# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trials on the shared root: what one machine writes, others read, lock and measure.

`trial` is the directory in which all machines meet, and what each does there; `locks` and `rates` are its parts.
Jobs can write to the shared root: everything here runs as the user of the nodes, in a directory with a random name, and
follows no link. Caller: the module shared_root_trial. Runs on machines with Python 3.9.
"""
