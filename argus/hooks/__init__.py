# SPDX-License-Identifier: Apache-2.0
"""What a trainer's workers run before any task: they load and mask the job's secrets, and isolate its TransferQueue."""
