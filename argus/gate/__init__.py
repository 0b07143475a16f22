# SPDX-License-Identifier: Apache-2.0
"""The gate: finds out, before a job is submitted, whether it can run. Called by ray_job, also in check mode.

gate: runs all checks in order. head: checks that run on the head. nodes: runs the package `checks` on the workers.
composition: composes the trainer's Hydra configuration from the job's overrides.
override_effects: compares this configuration with the overrides and the JobSpec.
job_config: this configuration, as rules read it. config, config_rl, config_batches, numbers, pools: the rules for all
workloads and SFT, for PPO and GRPO, for their batches, for values that are numbers, and for GPU pools.
"""
