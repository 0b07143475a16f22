# SPDX-License-Identifier: Apache-2.0
"""Files that jobs can write, read and written within limits; JSON, Hydra overrides, and output of processes."""
