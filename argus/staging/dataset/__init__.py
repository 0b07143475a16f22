# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Datasets: where their rows come from, how they are converted to verl's schema, and how every row is checked.

pyarrow is imported inside functions, because only nodes have it.
"""
