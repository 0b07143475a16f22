# SPDX-License-Identifier: Apache-2.0
"""Models, datasets and snapshots of verl under the shared root: staged once, verified, repaired, listed and removed.

``store`` stages a directory or a link atomically, under the lock of ``lock`` and with the manifest of ``manifest``.
``models``, ``snapshots`` and ``dataset.stage`` each make a ``store.BuildRequest`` for it.
"""
