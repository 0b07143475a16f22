#!/usr/bin/python

# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: machine_info
short_description: "Internal: return information about a machine, and its problems"
version_added: 0.1.0
author:
  - The argus.verl contributors (@argus-verl)
description:
  - Reads GPUs, HCAs, memory, mounts, container engine, containers, images, ports and processes of a machine in one go.
  - Compares the machine with O(expect) and returns each problem as a finding, with what to do about it.
  - The module does not fail on findings. M(argus.verl.preflight_report) does.
  - The module changes nothing on the machine.
requirements:
  - Python 3.9 or later on the machine
extends_documentation_fragment:
  - argus.verl.attributes
  - argus.verl.internal
attributes:
  check_mode:
    support: full
    details:
      - This module does not modify state.
  diff_mode:
    support: none
    details:
      - This module does not modify state.
options:
  cluster:
    description:
      - The name of the cluster. Containers whose label C(argus.verl.cluster) has this value are its own.
    type: str
    required: true
  engine:
    description:
      - The command of the container engine, V(docker) or V(podman), on E(PATH) or as an absolute path.
      - V(none) for a machine on which Ray runs without containers.
    type: str
    default: docker
  host:
    description:
      - The name of the machine in findings, usually C(inventory_hostname).
      - The default is the machine's host name.
    type: str
  names:
    description:
      - Names of containers that the cluster uses. A container that has one of them is returned, whatever its labels.
    type: list
    elements: str
    default: []
  images:
    description:
      - References of images to check for on the machine.
    type: list
    elements: str
    default: []
  accept:
    description:
      - Keys of checks, as C(key) or C(key@host), whose findings become notes.
    type: list
    elements: str
    default: []
  process:
    description:
      - A node that runs here without a container, C(ray_node_runtime=process), to report with the machine, by the
        arguments of C(look) in C(module_utils/cluster/process_host.py).
    type: dict
  expect:
    description:
      - What the machine must have, by the fields of C(Expectation) in C(module_utils/preflight/checks.py). Without it,
        only problems of any machine are found, such as an engine that does not answer.
    type: dict
    default: {}
seealso:
  - module: community.docker.docker_host_info
"""

EXAMPLES = r"""
- name: Probe the machine
  argus.verl.machine_info:
    cluster: mvp
    host: "{{ inventory_hostname }}"
    names: [mvp-ray-head]
    images: ["argus-verl-cpu:0.1.0"]
    expect:
      ports:
        - {node: mvp-ray-head, use: GCS, first: 20000, last: 20000}
      gpus: 8
      shared_root: /private
      shared_root_fstypes: [nfs4, lustre]
      disk_free_gib: 100
  register: machine

- name: Fail on errors
  ansible.builtin.assert:
    that: machine.findings | selectattr("severity", "equalto", "error") | length == 0
"""

RETURN = r"""
machine:
  description:
    - The machine as it was probed, by the fields of C(Machine) in C(module_utils/cluster/machine.py).
    - Sizes are in bytes, or in MiB where the name says so.
  returned: always
  type: dict
  sample:
    cluster: mvp
    user: ray
    gpus:
      - index: 0
        name: NVIDIA H100 80GB HBM3
        uuid: GPU-6a0f1e9b-38c1-5b8e-9d5c-0c2f4e7a1b30
        memory_mib: 81559
        driver_version: 550.90.07
    hcas:
      - {device: mlx5_0, port: 1, netdev: ib0, state: up, rate_gbit: 400, link_layer: InfiniBand}
    interfaces:
      - {name: eth0, addresses: [10.0.0.11/24], mtu: 1500, speed_gbit: 25, state: up, uplink: true}
    ports_in_use: [22]
expect:
  description: The value of O(expect), with its defaults.
  returned: always
  type: dict
  sample: {gpus: 8, hcas: 8, shared_root: /private}
time:
  description: The time on the machine, in seconds since the epoch, between the two of RV(clock).
  returned: always
  type: float
  sample: 1768205730.25
clock:
  description:
    - The time on the controller, in seconds since the epoch, when it asked the machine (C(sent)) and when it had its
      answer (C(received)).
  returned: always
  type: dict
  sample: {sent: 1768205730.0, received: 1768205730.5}
findings:
  description:
    - The problems of this machine alone, each with where, what, todo, severity (V(error), V(warning) or V(note)), and
      key, which is that of the check.
  returned: always
  type: list
  elements: dict
  sample:
    - where: gpu-07
      what: 7 GPUs found, expected at least 8
      todo: check for GPUs lost from the bus (dmesg, lspci), or lower the number of GPUs in the inventory
      severity: error
      key: gpu.count
"""

import platform
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.cluster.names import problems
from ansible_collections.argus.verl.plugins.module_utils.cluster.probe import Probe
from ansible_collections.argus.verl.plugins.module_utils.cluster.process_host import look
from ansible_collections.argus.verl.plugins.module_utils.cluster.state import program_of
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import Expectation, accepted
from ansible_collections.argus.verl.plugins.module_utils.preflight.machine import machine_findings


def arguments() -> dict[str, Any]:
    names = {"type": "list", "elements": "str", "default": []}
    return {
        "cluster": {"type": "str", "required": True},
        "engine": {"type": "str", "default": "docker"},
        "host": {"type": "str"},
        "accept": names,
        "names": names,
        "images": names,
        "process": {"type": "dict"},
        "expect": {"type": "dict", "default": {}},
    }


def main() -> None:
    module = AnsibleModule(argument_spec=arguments(), supports_check_mode=True)
    options = module.params
    # The first module of every play on machines: also of those that did not check the inventory, because of --limit.
    wrong = list(problems(cluster_name=options["cluster"]))
    if wrong:
        module.fail_json(msg=wrong[0])
    process = options["process"]
    expected = Expectation.from_json({**options["expect"], **({"python": process["python"]} if process else {})})
    token = Path(expected.token_file)
    paths = [expected.shared_root, *([str(token), str(token.parent)] if expected.token_file else [])]
    question = {name: options[name] for name in ("cluster", "engine", "names", "images")}
    machine = Probe().machine(**question, paths=list(filter(None, paths)), python=expected.python)
    if process:
        machine = replace(machine, process=look(**process))
    if expected.token_file:
        machine = replace(machine, program=program_of(token.parent))
    if machine.process and not expected.address:
        # The node uses the network of this host, and only here its address is known.
        expected = replace(expected, address=machine.process.address)
    findings = machine_findings(options["host"] or platform.node(), machine, expected)
    module.exit_json(
        machine=machine.to_json(),
        time=time.time(),
        findings=[accepted(finding, options["accept"]).as_dict() for finding in findings],
        expect=asdict(expected),
    )


if __name__ == "__main__":
    main()
