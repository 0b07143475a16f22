# SPDX-License-Identifier: GPL-3.0-or-later
"""The machines of a cluster, and what a node has there.

Machines: `probe` reads a machine with `hardware`, `gpus`, `system`, `processes` and `engine`; the answer is a
`machine.Machine`, which the package preflight compares with what is expected. `programs` runs what may hang.
Ports: `ports` plans them from one number.

Callers: modules, and packages of `plugin_utils`. What the modules for machines import runs there with Python 3.9.
"""
