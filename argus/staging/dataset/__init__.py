# SPDX-License-Identifier: Apache-2.0
"""Datasets: where their rows come from, how they are converted to verl's schema, and how every row is checked.

pyarrow is imported inside functions, because only nodes have it.
"""
