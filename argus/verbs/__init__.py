# SPDX-License-Identifier: Apache-2.0
"""The verbs of the command, a file each: its request, what it does, and what it prints for people."""
