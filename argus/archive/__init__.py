# SPDX-License-Identifier: Apache-2.0
"""The archive of a job: the directory of the shared root with all that is known about the job.

archive: class Archive, which opens, reads and writes it.
plan, program: what the job was submitted with, and the version of argus that looks after it.
status, failures: the job's state, and why it failed.
job_warnings, warning_inputs: warnings about a job that looks successful, and the facts from which they follow.
checkpoints, metrics, samples: what the trainer writes.
"""
