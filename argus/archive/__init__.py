# SPDX-License-Identifier: Apache-2.0
"""The job archive, its directory on the shared root. Modules: archive; plan, program (input); status, failures,
job_warnings (state); checkpoints, metrics, samples (output).
"""
