# SPDX-License-Identifier: Apache-2.0
"""The archive of a job: a directory on the shared root with its input, its state and its output.

`archive` reads and writes it. Input: `plan` (what to run, and how), `program` (how to start this program for the job).
State: `status`, `failures`, `job_warnings`, `warning_inputs`. Output: `checkpoints`, `metrics`, `samples`.
"""
