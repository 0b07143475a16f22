# SPDX-License-Identifier: Apache-2.0
"""The network between the workers of a running cluster: `all_reduce` measures it, and `suspects` finds the worker that
is to blame, in any Python without packages.
"""
