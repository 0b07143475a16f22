# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs beside a training, and what it shares with the modules that read its traces.

The package is copied into every job's archive and run from there, on a worker, by whatever Python the
image has: the standard library and Ray only, and no import from outside the package.
"""
