# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Models, datasets and snapshots of verl under the shared root: staged once, verified, repaired, listed and removed.

``store`` stages a directory or a link atomically, under the lock of ``lock`` and with the manifest of ``manifest``.
``models``, ``snapshots`` and ``dataset.stage`` each build a ``store.Request``. The modules ``hf_model``,
``code_snapshot``, ``rl_dataset`` and ``staged_info`` call this package, and the filters and the action plugin of the
role ``staging`` read its results. Within the collection it imports ``checks``, ``launcher.archive`` and the modules
above the packages.
"""
