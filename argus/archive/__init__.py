# SPDX-License-Identifier: Apache-2.0
"""The archive of a job: its plan, status, checkpoints, metrics, samples, failures and warnings, and its program."""
