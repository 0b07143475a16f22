# SPDX-License-Identifier: Apache-2.0
"""The archive of a job, its directory on the shared root. Input: plan, program. State: status, failures, job_warnings,
warning_inputs. Output: checkpoints, metrics, samples.
"""
