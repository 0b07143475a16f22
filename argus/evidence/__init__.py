# SPDX-License-Identifier: Apache-2.0
"""Evidence of a job: what Ray and the nodes report of it, and what they measure while it runs."""
