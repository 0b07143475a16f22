# SPDX-License-Identifier: Apache-2.0
"""The network between the workers of a running cluster: `all_reduce` measures it, `fault_search` finds faults."""
