# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The width of the terminal. Only the controller knows it: modules return data, and action plugins draw it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass

# The width of tables without a terminal, as in CI and in files.
NO_TERMINAL = 100
# Ansible's own width without a terminal, and on narrow ones.
ANSIBLE_LEAST = 79


@dataclass(frozen=True)
class Terminal:
    """Where the output goes. columns: how wide tables may be. is_terminal: whether sentences are wrapped, too."""

    columns: int
    is_terminal: bool

    @property
    def sentence_width(self) -> int | None:
        """The width of running text; None without a terminal, where programs search whole sentences."""
        return self.columns if self.is_terminal else None


# Action plugins run in processes that are detached from the terminal. They inherit what was measured before the fork.
_measured: list[Terminal] = []


def chosen(environment: Mapping[str, str], columns: int, is_terminal: bool) -> Terminal:
    """The terminal as measured, with the width that `COLUMNS` in the environment says."""
    given = environment.get("COLUMNS", "")
    if given.isascii() and given.isdecimal() and int(given) > 0:
        return Terminal(int(given), is_terminal)
    return Terminal(columns if is_terminal else NO_TERMINAL, is_terminal)


def measure() -> Terminal:
    """Measure the terminal; for the main process, before each task."""
    is_terminal = sys.stdout.isatty()
    found = chosen(os.environ, shutil.get_terminal_size().columns, is_terminal)
    _measured[:] = [found]
    return found


def terminal(ansible_columns: int) -> Terminal:
    """The terminal as measured last. With another stdout callback, it is the one that Ansible found.

    ansible_columns: the width in Ansible's `Display`, which is one column less.
    """
    if _measured:
        return _measured[0]
    return chosen(os.environ, ansible_columns + 1, ansible_columns > ANSIBLE_LEAST)
