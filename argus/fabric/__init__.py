# SPDX-License-Identifier: Apache-2.0
"""The network between the workers of a running cluster: `all_reduce` measures it, and finds the worker at fault, in any
Python without packages.
"""
