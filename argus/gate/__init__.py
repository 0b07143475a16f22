# SPDX-License-Identifier: Apache-2.0
"""The gate: finds out, before a job is submitted, whether it can run. Each submission calls it, also in check mode.

gate: runs all checks in order, and plans the job.
head: checks that run on the head. nodes: runs the package `checks` on the workers.
composition: composes the trainer's configuration, to which the rules of these modules apply:
config (all workloads, and SFT), config_rl (PPO and GRPO), config_batches (batch sizes), numbers, pools (GPU pools).
"""
