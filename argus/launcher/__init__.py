# SPDX-License-Identifier: GPL-3.0-or-later
"""The launcher runs beside a training, on a worker: it starts the trainer, watches it, and records how it ended.

Called by: the entrypoint of a job. `argus launch` needs no packages; Ray is imported inside functions.
"""
