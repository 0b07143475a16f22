# SPDX-License-Identifier: GPL-3.0-or-later
"""The archive of a job: its plan, status, checkpoints, metrics, samples, failures and warnings, and its program."""
