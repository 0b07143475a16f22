# SPDX-License-Identifier: GPL-3.0-or-later
"""The network of machines: interfaces and HCAs as read, and the settings of NCCL and gloo that follow from them.

Reading: `hcas`, `interfaces`. Decisions over all machines: `derive` (which interface, HCAs and GID index jobs use).

Machines are known by name only; nodes, containers and inventories belong to `cluster`, which calls this package. What
reads a machine runs there with Python 3.9.
"""
