# SPDX-License-Identifier: Apache-2.0
"""The nodes of a cluster: `membership` compares the expected nodes with those that Ray reports, and waits until they
agree; `supervisor` keeps Ray running on a node without a container. Both need the standard library only.
"""
