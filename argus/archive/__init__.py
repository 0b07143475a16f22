# SPDX-License-Identifier: Apache-2.0
"""The job archive, its directory on the shared root: input (plan, version of argus), state (status, failures,
warnings) and output (checkpoints, metrics, samples).
"""
