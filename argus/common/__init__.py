# SPDX-License-Identifier: Apache-2.0
"""Texts, findings and paths of the shared root, for all packages. Standard library only."""
