# SPDX-License-Identifier: Apache-2.0
"""The gate: finds out, before a job is submitted, whether it can run. Called by ray_job, also in check mode.

gate: runs all checks in order. head: checks that run on the head. composition: composes the trainer's configuration.
nodes: runs the package `checks` on the workers, and compares the configuration with the overrides and the JobSpec.
config, config_rl, config_batches, numbers, pools: the rules for the configuration of all workloads and SFT, of PPO and
GRPO, for their batches, for values that are numbers, and for GPU pools.
"""
