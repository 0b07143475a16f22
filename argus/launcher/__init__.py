# SPDX-License-Identifier: GPL-3.0-or-later
"""The launcher runs beside a training, on a worker.

It imports only the standard library and, inside functions, Ray; nothing from outside the package.
Called by: the entrypoint of a job, and every package that reads or writes archives through its classes: Archive
(archive), Plan (plan), Status (status), RayHead (ray_api), and the Hydra grammar (hydra).
"""
