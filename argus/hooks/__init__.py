# SPDX-License-Identifier: Apache-2.0
"""Hooks that run first in every worker process of a trainer: secrets, and a TransferQueue for each job."""
