# SPDX-License-Identifier: Apache-2.0
"""Findings, text for people, paths of the shared root, and what tells a process its node. Standard library only."""
