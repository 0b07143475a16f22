# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The status of jobs: state, progress and log, read from their archives and from Ray, and reports for people.

Read-only. Imports `launcher`, and the submission id of `job`. Called by `operations` and modules, and on the controller
by action plugins and filters.
"""
