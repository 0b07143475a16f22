# SPDX-License-Identifier: Apache-2.0
"""The nodes of a cluster. All modules need the standard library only.

`membership` compares the expected nodes with those that Ray reports, and waits until they agree. On a node without a
container, `supervisor` keeps Ray running.
"""
