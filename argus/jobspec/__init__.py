# SPDX-License-Identifier: Apache-2.0
"""A job: the JobSpec that its author writes, and the plan that it becomes on a cluster. No files, no network, no Ray.

spec, value_types: the keys of a JobSpec with their types.
parse, limits: merge a JobSpec from its parts, and parse it.
spec_checks, owned, environment: check its values, its overrides and its variables.
overrides, verl_releases: the default Hydra overrides, and the settings of verl's releases.
capacity, plan: whether the cluster can hold the job, and the resulting plan.
"""
