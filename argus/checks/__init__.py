# SPDX-License-Identifier: Apache-2.0
"""Checks of a job that run on a worker, where its files and packages are.

worker runs all of them, in this order: paths, job_dataset, model (with model_settings), prompts, reward, packages, and
its own check of space. request has what they get and fill in, child runs code of the job in a process, and dataset is
shared with staging.
Called by: the gate, which starts them on the cluster, and staging, which checks datasets and models before they are
used.
"""
