# SPDX-License-Identifier: Apache-2.0
"""Evidence of a job: reports of Ray and of the nodes, and measurements while the job runs."""
