# SPDX-License-Identifier: Apache-2.0
"""The gate: admission of a job. It finds out whether a job can run before anything is submitted.

Lives here: the order of checks, and those on the head (gate); the checks on workers (nodes); the composition of the
trainer's configuration (composition), and the rules for it (config, config_rl, numbers, pools).
Called by: ray_job, before a submission and in check mode.
"""
