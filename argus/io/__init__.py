# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that jobs can write, read and written within limits; JSON, Hydra overrides, and output of processes."""
