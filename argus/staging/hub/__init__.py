# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repositories of HuggingFace's hub in the hub's own cache: downloaded by its library, verified against its hashes.

The library implements the protocol: redirects, retries, Xet, resuming after a broken connection. This package adds what
the library lacks: it trusts a file that exists, it restarts a download that a killed process left unfinished, it waits
for some answers without a timeout, and its errors do not tell what to do. Read in huggingface_hub 1.33.0:
file_download.py, utils/_http.py, utils/_xet.py, utils/_cache_manager.py.

``repository.Repository`` asks the hub, ``cache`` downloads into the cache and removes from it. ``models`` and
``dataset.sources`` call them.
"""
