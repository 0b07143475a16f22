# SPDX-License-Identifier: Apache-2.0
"""A job: the JobSpec that its author writes, and the plan that it becomes on a cluster.

Lives here: the keys of a JobSpec with their types (spec, value_types), putting it together and parsing it (parse,
limits), and checking it (spec_checks, owned, environment); the capacity of a cluster (capacity), the default Hydra
overrides (overrides), the names of settings in verl's releases (verl_releases), and the resulting plan (plan). All of
it is pure: no files, no network, no Ray.
Called by: ray_job and its action plugin, and by checks, gate and operations.
"""
