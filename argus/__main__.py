# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run as ``python3 -m argus VERB``."""

from __future__ import annotations

from .cli import run

if __name__ == "__main__":
    run()
