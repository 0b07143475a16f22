# SPDX-License-Identifier: Apache-2.0
"""What runs in every worker process of a trainer, before it: secrets, and a TransferQueue for each job."""
