# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network of machines: interfaces and HCAs as read, and the settings of NCCL and gloo that follow from them.

Reading: `hcas`, `interfaces`. Decisions over all machines: `derive` (which interface, HCAs and GID index jobs use).

Machines are known by name only; nodes, containers and inventories belong to `cluster`, which calls this package. What
reads a machine runs there with Python 3.9.
"""
