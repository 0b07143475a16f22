# SPDX-License-Identifier: Apache-2.0
"""The launcher runs beside a training, on a worker: it starts the trainer, watches it, and records how it ended.

launch: runs an attempt. program_runner, torchrun: start its programs.
watch, health, log_scan: follow the running trainer. driver_log: writes its output.
outcome, diagnosis, failure_rules: how the attempt ended, and why.
commands: the verbs of `argus launch`, the entrypoint of a job. It needs no packages; Ray is imported inside functions.
"""
