# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The network between the workers of a running cluster: `all_reduce` measures it, and `suspects` finds the worker that
is to blame, in any Python without packages.
"""
