# SPDX-License-Identifier: Apache-2.0
"""Admission checks of a job: find out, before submission, whether it can run. Called by ray_job, also in check mode.

gate: runs all checks in order, and itself those on the head. nodes: actors that run checks on nodes.
composition: the trainer's configuration. config, config_rl, pools: its rules. numbers: those for numbers.
"""
