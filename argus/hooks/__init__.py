# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs in every worker process of a trainer, before it: secrets, and a TransferQueue for each job."""
