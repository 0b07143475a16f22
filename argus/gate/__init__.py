# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The gate: admission of a job. It finds out whether a job can run before anything is submitted.

Lives here: checks on the head (head), the composition of the trainer's configuration (composition), checks of the
composed configuration (config, config_rl, config_sft, settings), and their order (gate).
Called by: ray_job, before a submission and in check mode.
"""
