# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The program for jobs: what a job is, what is checked before it starts, what runs beside it, and what it leaves.

It imports neither Ansible nor the plugins of the collection, and its packages import each other by relative names.
"""
