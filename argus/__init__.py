# SPDX-License-Identifier: Apache-2.0
"""The program for jobs: what a job is, what is checked before it starts, what runs beside it, and what it leaves.

It imports neither Ansible nor the plugins of the collection, and its packages import each other by relative names.
"""
