# SPDX-License-Identifier: Apache-2.0
"""The program for jobs: their specification, the checks before they start, the processes beside them, and archives.

It imports neither Ansible nor the plugins of the collection, and its packages import each other by relative names.
"""
