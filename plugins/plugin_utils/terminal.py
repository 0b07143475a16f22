# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The width of the terminal. Only the controller knows it: modules return data, and action plugins draw it."""

from __future__ import annotations

import os
import shutil
import sys

# Measured when the run begins: the processes that run tasks are detached from the terminal.
IS_TERMINAL = sys.stdout.isatty()
# Without a terminal, as in CI and in files, tables have this width.
WIDTH = shutil.get_terminal_size().columns if IS_TERMINAL else 100


def columns() -> int:
    """How wide tables may be: as `COLUMNS` in the environment says, or as measured."""
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isascii() and given.isdecimal() and int(given) > 0 else WIDTH


def sentence_width() -> int | None:
    """The width of running text; None without a terminal, where programs search whole sentences."""
    return columns() if IS_TERMINAL else None
