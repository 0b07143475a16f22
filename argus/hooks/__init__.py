# SPDX-License-Identifier: Apache-2.0
"""Hooks that a trainer's workers run first: they load and mask the job's secrets, and isolate its TransferQueue."""
