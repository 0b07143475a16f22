# SPDX-License-Identifier: GPL-3.0-or-later
"""Evidence of a job: what Ray and the nodes report of it, and what they measure while it runs."""
