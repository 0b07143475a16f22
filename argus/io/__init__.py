# SPDX-License-Identifier: Apache-2.0
"""Reads and writes files that jobs can change, within limits; parses JSON, Hydra overrides and output of processes."""
