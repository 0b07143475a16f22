# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Models, datasets and snapshots of verl under the shared root: staged once, verified, repaired, listed and removed.

``store`` stages a directory or a link atomically, under the lock of ``lock`` and with the manifest of ``manifest``.
``models``, ``snapshots`` and ``dataset.stage`` each build a ``store.Request``.
"""
