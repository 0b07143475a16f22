#!/usr/bin/python
# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Implemented by the action plugin of the same name.
from __future__ import annotations

DOCUMENTATION = r"""
module: preflight_report
short_description: "Internal: judge what machines have answered, show it, and fail on errors"
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Judges the results of M(argus.verl.machine_info) of all hosts, which are registered as C(__preflight), and compares
    the hosts with each other.
  - Prints all findings, worst first, and fails on errors.
  - Writes the result as HTML and JSON to the controller and to the shared root.
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.internal
attributes:
  check_mode:
    support: partial
    details:
      - In check mode no file is written.
  diff_mode:
    support: none
options:
  hosts:
    description: The machines that should have answered.
    type: list
    elements: str
    required: true
  cluster:
    description: The name of the cluster, which is also that of the files.
    type: str
    required: true
  tier:
    description: The tier that was asked for.
    type: str
    choices: [fast, standard, deep]
    default: fast
  accept:
    description: Keys of checks, as C(key) or C(key@host), whose findings become notes.
    type: list
    elements: str
    default: []
  findings:
    description: More findings, of checks that the playbook has made.
    type: list
    elements: dict
    default: []
  sections:
    description: More tables, each with C(title), C(header) and C(rows).
    type: list
    elements: dict
    default: []
  images:
    description: The image of each kind of accelerator, C(cluster_images).
    type: dict
    default: {}
  builds:
    description: How the controller builds images, C(cluster_image_builds). Their inputs are read here.
    type: dict
    default: {}
  archive:
    description: Where a file with images is, C(cluster_image_archive).
    type: dict
    default: {}
  dest:
    description: The directory on the controller for the files. Without it, none is written.
    type: path
  shared_root:
    description: The shared root on the machine of the task, for the same files. Without it, none is written.
    type: str
"""

EXAMPLES = r"""
- name: Show the findings of all machines
  argus.verl.preflight_report:
    hosts: "{{ ansible_play_hosts_all }}"
    cluster: mvp
    tier: fast
  run_once: true
"""

RETURN = r"""
preflight:
  description: The result.
  returned: always
  type: dict
  contains:
    tier:
      description: The tier.
      type: str
      sample: fast
    hosts:
      description: All machines.
      type: list
      elements: str
      sample: [gpu-01]
    silent:
      description: Those without an answer.
      type: list
      elements: str
      sample: []
    findings:
      description: All findings, worst first, each with where, what, todo, severity and key.
      type: list
      elements: dict
      sample: []
    hardware:
      description: By machine, what it has.
      type: dict
      sample: {gpu-01: {GPUs: 8 x NVIDIA H100 80GB HBM3}}
    checks:
      description: By machine and key of a check, V(ok), or the worst severity of its findings.
      type: dict
      sample: {gpu-01: {gpu.ecc: ok}}
    sections:
      description: The value of O(sections).
      type: list
      elements: dict
      sample: []
image_builds:
  description:
    - The values of O(builds) by the names of their images, each with the hash of its C(inputs), the C(arguments) of the
      engine, and whether to C(push) it.
  returned: always
  type: dict
  sample: {}
files:
  description: The files that were written, on the controller and on the shared root.
  returned: always
  type: list
  elements: str
  sample: [artifacts/preflight/mvp.html]
"""
