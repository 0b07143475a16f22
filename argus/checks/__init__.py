# SPDX-License-Identifier: Apache-2.0
"""Checks of a job that run on a worker, where its files and packages are.

worker: runs all of them, in the order paths, job_dataset, model, prompts, reward, packages, space.
request: what the checks get, and the facts that they return.
dataset: what verl requires of rows, which staging checks as well. model_settings: the part of model about settings.
child: runs code of the job in a process.
Called by the gate, which starts them on the cluster, and by staging.
"""
