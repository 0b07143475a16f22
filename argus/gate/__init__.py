# SPDX-License-Identifier: Apache-2.0
"""Admission checks of a job: find out, before submission, whether it can run.

Modules: the order of checks, and those on the head (gate); the actors that run the others on nodes (nodes); the
trainer's composed configuration (composition), its rules (config, config_rl, pools), and those for numbers (numbers).
Called by: ray_job, before a submission and in check mode.
"""
