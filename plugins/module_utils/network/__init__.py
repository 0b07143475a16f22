# SPDX-License-Identifier: GPL-3.0-or-later
"""The network of machines as read, and the settings of NCCL and gloo that follow. Python 3.9, as for all modules."""
