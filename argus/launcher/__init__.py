# SPDX-License-Identifier: Apache-2.0
"""The launcher runs beside a training, on a worker: it starts the trainer, watches it, and records how it ended.

Called by: the entrypoint of a job. `argus launch` needs no packages; Ray is imported inside functions.
"""
