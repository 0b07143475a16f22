#!/usr/bin/python

# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: machine_info
short_description: Return information about a machine, and its problems
version_added: 0.1.0
author:
  - The argus.verl contributors (@argus-verl)
description:
  - Reads GPUs, HCAs, memory, mounts, container engine, containers, images and ports of a machine in one go.
  - Compares the machine with O(expect) and returns each problem as a finding, with what to do about it.
  - The module does not fail on findings. M(argus.verl.report) does.
  - The module changes nothing on the machine.
requirements:
  - Python 3.9 or later on the machine
extends_documentation_fragment:
  - argus.verl.attributes
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
  paths:
    description:
      - Absolute paths whose mounts to report.
      - O(expect.shared_root), O(expect.token_file) and its directory are always among them.
    type: list
    elements: str
    default: []
  accept:
    description:
      - Keys of checks, as C(key) or C(key@host), whose findings become notes.
    type: list
    elements: str
    default: []
  tier:
    description:
      - Also read the topics of preflight up to this tier, and return them as RV(answers).
      - By default, none is read.
    type: str
    choices: [fast, standard, deep]
  process:
    description:
      - A node that runs here without a container, C(ray_node_runtime=process), to report with the machine.
    type: dict
    suboptions:
      directory:
        description: The directory of the node.
        type: path
        required: true
      python:
        description: The Python in whose environment Ray is installed, C(ray_node_python).
        type: str
        required: true
      address:
        description: The address at which Ansible reaches this host. It is the node's, if the host has it.
        type: str
        default: ""
      head:
        description: The address of the head's host. Otherwise, the node's address is the one that leads there.
        type: str
        default: ""
  expect:
    description:
      - What the machine must have. Without it, only problems of any machine are found, such as an engine that does not
        answer.
    type: dict
    suboptions:
      gpus:
        description:
          - The minimum number of GPUs. By default, any number.
        type: int
      gpu_model:
        description:
          - Whole words in the name of each GPU, in any case. Any name when empty.
        type: str
        default: ""
      gpu_memory_gib:
        description:
          - Memory of each GPU in GiB. A tenth less is accepted.
        type: float
        default: 0
      hcas:
        description:
          - The minimum number of HCA ports that are up.
        type: int
        default: 0
      shared_root:
        description:
          - The path of the shared root on the machine. Not checked when empty.
        type: str
        default: ""
      shared_root_fstypes:
        description:
          - The file-system types that the shared root may have, as the kernel names them. Any when empty.
        type: list
        elements: str
        default: []
      memory_gib_per_gpu:
        description:
          - Memory in GiB for each of the GPUs of O(expect.gpus), or for each one found.
          - Issue 429 of verl names 80 GB.
        type: float
        default: 0
      disk_free_gib:
        description:
          - Free space in GiB where the engine keeps images and containers, or in C(/tmp) with O(engine=none).
        type: float
        default: 0
      shared_root_free_gib:
        description:
          - Free space in GiB on the shared root.
        type: float
        default: 0
      shm_gib:
        description:
          - Size of C(/dev/shm) in GiB.
        type: float
        default: 0
      object_store_gib:
        description:
          - Memory in GiB for Ray's object store, of the largest node.
        type: float
        default: 0
      user:
        description:
          - The user of the nodes, as C(uid:gid). If empty, the default user of nodes where Ansible is root.
          - If Ansible is root, the job archives on the shared root have to belong to this user.
        type: str
        default: ""
      token_file:
        description:
          - The file of the cluster's token. No other user may read it, or list its directory. The directory has to be
            on a local disk, and writable or possible to create. Not checked when empty.
        type: path
        default: ""
      ports:
        description:
          - Ranges of TCP ports that the cluster's nodes listen on. They have to be free, unless the node holds them
            itself, and the kernel must not give them to outgoing connections.
        type: list
        elements: dict
        default: []
        suboptions:
          node:
            description:
              - The node.
            type: str
            required: true
          use:
            description:
              - What the node listens for.
            type: str
            required: true
          first:
            description:
              - The first port.
            type: int
            required: true
          last:
            description:
              - The last port.
            type: int
            required: true
      rdma:
        description:
          - Whether nodes of the machine get the devices of its HCAs, which their user must be able to open. With
            V(auto), a machine without HCAs is fine.
        type: str
        choices: [auto, "true", "false"]
        default: "false"
      groups:
        description:
          - The nodes' further groups, as numbers or names.
        type: list
        elements: str
        default: []
      address:
        description:
          - At which nodes of other machines reach this one. Empty if nodes do not use the machine's own network, which
            is then not checked.
        type: str
        default: ""
      trains:
        description:
          - Whether the machine has workers. The HCAs of other machines are not used.
        type: bool
        default: true
      network_env:
        description:
          - The variables of NCCL and gloo that the inventory sets, among those that are derived otherwise.
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
      hcas: 8
      shared_root: /private
      shared_root_fstypes: [nfs4, lustre]
      memory_gib_per_gpu: 80
      disk_free_gib: 100
  register: machine

- name: Fail on errors
  ansible.builtin.assert:
    that: machine.findings | selectattr("severity", "equalto", "error") | length == 0
"""

RETURN = r"""
machine:
  description: The machine as it was probed.
  returned: always
  type: dict
  contains:
    cluster:
      description: The value of O(cluster).
      type: str
      sample: mvp
    python:
      description: The Python that runs the modules.
      type: str
      sample: /usr/bin/python3
    missing_packages:
      description: The packages that C(community.docker) needs and that Python lacks.
      type: list
      elements: str
      sample: []
    gpus:
      description:
        - The NVIDIA GPUs, by index, each with RV(ignore:index), RV(ignore:name), RV(ignore:uuid), RV(ignore:memory_mib)
          (MiB; 0 where the driver does not report it) and RV(ignore:driver_version).
        - Empty when C(nvidia-smi) is not installed.
      type: list
      elements: dict
      sample:
        - index: 0
          name: NVIDIA H100 80GB HBM3
          uuid: GPU-6a0f1e9b-38c1-5b8e-9d5c-0c2f4e7a1b30
          memory_mib: 81559
          driver_version: 550.90.07
    amd_gpus:
      description: The number of AMD GPUs that the driver amdgpu has.
      type: int
      sample: 0
    rocm_gpus:
      description:
        - The AMD GPUs that ROCm can use, in the order in which HIP counts them, read from C(/sys/class/kfd). Those with
          less than 8 GiB of memory of their own are left out.
      type: list
      elements: dict
      sample:
        - index: 0
          gfx: gfx942
          memory_mib: 196592
          render: /dev/dri/renderD128
    rocm_devices:
      description: The devices of ROCm, C(/dev/kfd) and those of the GPUs, with the permissions of their files.
      type: list
      elements: dict
      sample:
        - path: /dev/kfd
          mode: 432
          uid: 0
          gid: 109
    gpus_error:
      description: The error of C(nvidia-smi), or null. With an error the list of GPUs may be incomplete.
      type: str
      sample: null
    hcas:
      description:
        - The ports of HCAs. The state is V(up) or V(down); netdev is null for a port without an interface.
        - rate_gbit is 0 and link_layer is empty where they are unknown.
        - gid_index is the index of the GID for RoCE v2 over IPv4, or null.
        - errors are the counters of errors that are not 0.
      type: list
      elements: dict
      sample:
        - device: mlx5_0
          port: 1
          netdev: ib0
          state: up
          rate_gbit: 400
          link_layer: InfiniBand
          gid_index: null
          errors: {}
    hca_source:
      description: The source of the HCAs, V(ibdev2netdev), V(sysfs) or V(none).
      type: str
      sample: ibdev2netdev
    mounts:
      description:
        - For each path, the mount that holds it, and its space in bytes.
        - For a path that does not exist, mount, space and writable are those of its nearest parent.
        - error is the reason why a path cannot be read, as when a file server does not answer within 5 seconds.
        - mode is that of the path as a number, or null if it does not exist.
        - archives_owner is the C(uid:gid) of the directory C(jobs) in the path, or null.
      type: list
      elements: dict
      sample:
        - path: /private
          exists: true
          mount_point: /private
          fstype: nfs4
          source: storage.example.org:/export/private
          options: [rw, relatime, vers=4.2, hard]
          free_bytes: 8796093022208
          total_bytes: 17592186044416
          writable: true
          error: null
          mode: 493
          archives_owner: "61000:61000"
    disk:
      description:
        - The same for the engine's data directory, or for C(/tmp) with O(engine=none).
        - Null when the engine does not answer.
      type: dict
    memory_bytes:
      description: Memory in bytes, not more than the limit of the container that the session runs in.
      type: int
      sample: 2164663517184
    memory_available_bytes:
      description: Memory in bytes that is available without swapping.
      type: int
      sample: 2100000000000
    shm_bytes:
      description: Size of C(/dev/shm) in bytes.
      type: int
      sample: 1082331758592
    cpus:
      description: The number of CPUs that the session may use.
      type: int
      sample: 192
    uid:
      description: The user's id.
      type: int
      sample: 1000
    gid:
      description: The id of the user's group.
      type: int
      sample: 1000
    user:
      description: The user's name.
      type: str
      sample: ray
    engine:
      description:
        - The container engine. Its status is V(ok), V(missing), V(denied) (this user may not use it), V(no_answer),
          V(failed), or V(none) with O(engine=none).
        - nvidia is whether it can give GPUs to containers.
        - Of Podman, rootless is whether it runs without root, limits_pids whether it can limit processes, lingers
          whether containers outlive the user's connection, boots whether they start again after a boot, and tun
          whether they can have networks without root.
        - error is null with V(ok); version and root_dir are null when it does not answer.
      type: dict
      sample:
        name: docker
        status: ok
        version: 27.3.1
        error: null
        root_dir: /var/lib/docker
        nvidia: true
        rootless: false
        limits_pids: true
        lingers: true
        boots: true
        tun: true
    containers:
      description:
        - By name, the containers of the cluster in any state, and those that have one of O(names).
        - started_at is null for a container that never ran.
        - host_ports are the ports that it publishes on the machine.
      type: dict
      sample:
        mvp-ray-head:
          id: 4f0c5a1ee1c58f1d9f5f8a6cf0d3c8f1b3a9d4f1c0e5b7a6d8e9f0a1b2c3d4e5
          state: running
          started_at: "2026-01-12T08:15:30.123456789Z"
          image_id: sha256:9d1c6b7ae25dd1f0c8a5e4b3f2a1908f7e6d5c4b3a29181f0e9d8c7b6a5f4e3d
          labels:
            argus.verl.cluster: mvp
          host_ports: [8265]
          host_network: false
    images:
      description: By reference as given in O(images), the image's id and labels, or null when the machine lacks it.
      type: dict
      sample:
        argus-verl-cpu:0.1.0:
          id: sha256:9d1c6b7ae25dd1f0c8a5e4b3f2a1908f7e6d5c4b3a29181f0e9d8c7b6a5f4e3d
          labels: {}
    interfaces:
      description:
        - The network interfaces, with their addresses, MTU and rate (0 where it is unknown).
        - uplink is whether a default route leads over the interface.
      type: list
      elements: dict
      sample:
        - {name: eth0, addresses: [10.0.0.11/24], mtu: 1500, speed_gbit: 25, state: up, uplink: true}
    program:
      description:
        - The name of the program of the cluster that nodes run, beside O(expect.token_file); an empty string without
          one.
      type: str
      sample: argus-4f0c5a1ee1c5.zip
    process:
      description: The node of O(process) and what it needs of the host; null without that option.
      type: dict
      sample: null
    ports_in_use:
      description: The TCP ports of the machine on which a process listens at any address, those of its nodes included.
      type: list
      elements: int
      sample: [22]
    ephemeral_ports:
      description: The first and the last port that the kernel gives to outgoing connections, null if it is not known.
      type: list
      elements: int
      sample: [32768, 60999]
    reserved_ports:
      description: Ranges of these ports that the kernel leaves out, each with its first and last port.
      type: list
      elements: list
      sample: [[20000, 21999]]
    rdma_devices:
      description: The devices C(/dev/infiniband/uverbs*), each with its path, mode, uid and gid.
      type: list
      elements: dict
      sample:
        - {path: /dev/infiniband/uverbs0, mode: 438, uid: 0, gid: 0}
answers:
  description:
    - What the topics of preflight have read with O(tier), by the name of the topic, for M(argus.verl.preflight_report).
    - Each has either answer, or error.
  returned: always
  type: dict
  sample:
    host:
      answer: {kernel: 6.8.0-45-generic}
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
    - The problems of the basic answer, each with where, what, todo, severity (V(error) or V(warning)) and key.
    - The key is that of the check.
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
from pathlib import Path, PurePosixPath
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.cluster.names import problems
from ansible_collections.argus.verl.plugins.module_utils.cluster.probe import Probe, Question
from ansible_collections.argus.verl.plugins.module_utils.cluster.process_host import ProcessQuestion, look
from ansible_collections.argus.verl.plugins.module_utils.cluster.state import program_of
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import accepted
from ansible_collections.argus.verl.plugins.module_utils.preflight.expectation import Expectation
from ansible_collections.argus.verl.plugins.module_utils.preflight.machine import machine_findings
from ansible_collections.argus.verl.plugins.module_utils.preflight.tier import Tier
from ansible_collections.argus.verl.plugins.module_utils.preflight.topics import reading

PORTS = {
    "node": {"type": "str", "required": True},
    "use": {"type": "str", "required": True},
    "first": {"type": "int", "required": True},
    "last": {"type": "int", "required": True},
}
PROCESS = {
    "directory": {"type": "path", "required": True},
    "python": {"type": "str", "required": True},
    "address": {"type": "str", "default": ""},
    "head": {"type": "str", "default": ""},
}


def arguments() -> dict[str, Any]:
    names = {"type": "list", "elements": "str", "default": []}
    return {
        "cluster": {"type": "str", "required": True},
        "engine": {"type": "str", "default": "docker"},
        "host": {"type": "str"},
        "accept": names,
        "names": names,
        "images": names,
        "paths": names,
        "tier": {"type": "str", "choices": ["fast", "standard", "deep"]},
        "process": {"type": "dict", "options": PROCESS},
        "expect": {
            "type": "dict",
            "options": {
                "gpus": {"type": "int"},
                "gpu_model": {"type": "str", "default": ""},
                "gpu_memory_gib": {"type": "float", "default": 0},
                "hcas": {"type": "int", "default": 0},
                "shared_root": {"type": "str", "default": ""},
                "shared_root_fstypes": names,
                "memory_gib_per_gpu": {"type": "float", "default": 0},
                "disk_free_gib": {"type": "float", "default": 0},
                "shared_root_free_gib": {"type": "float", "default": 0},
                "shm_gib": {"type": "float", "default": 0},
                "object_store_gib": {"type": "float", "default": 0},
                "user": {"type": "str", "default": ""},
                "token_file": {"type": "path", "default": "", "no_log": False},
                "ports": {"type": "list", "elements": "dict", "default": [], "options": PORTS},
                "rdma": {"type": "str", "choices": ["auto", "true", "false"], "default": "false"},
                "groups": names,
                "address": {"type": "str", "default": ""},
                "trains": {"type": "bool", "default": True},
                "network_env": {"type": "dict", "default": {}},
            },
        },
    }


def main() -> None:
    module = AnsibleModule(argument_spec=arguments(), supports_check_mode=True)
    asked = dict(module.params)
    # The first module of every play on machines: also of those that did not check the inventory, because of --limit.
    wrong = list(problems(cluster_name=asked["cluster"]))
    if wrong:
        module.fail_json(msg=wrong[0])
    host = asked.pop("host") or platform.node()
    expect = asked.pop("expect") or {}
    expectation = Expectation.from_json(expect)
    token = (
        [expectation.token_file, str(PurePosixPath(expectation.token_file).parent)] if expectation.token_file else []
    )
    asked["paths"] = list(dict.fromkeys([*asked["paths"], *filter(None, [expectation.shared_root]), *token]))
    tier, process, accept = (asked.pop(name) for name in ("tier", "process", "accept"))
    if process:
        expectation = replace(expectation, python=process["python"])
    # Before the threads of the probe.
    topics = reading(Tier(tier), expectation) if tier else None
    machine = Probe().machine(Question(**asked))
    if process:
        machine = replace(machine, process=look(ProcessQuestion(**process)))
    if expectation.token_file:
        machine = replace(machine, program=program_of(Path(expectation.token_file).parent))
    if machine.process and not expectation.address:
        # The node uses the network of this host, and only here its address is known.
        expectation = replace(expectation, address=machine.process.address)
    findings = [accepted(finding, accept) for finding in machine_findings(host, machine, expectation)]
    module.exit_json(
        machine=machine.to_json(),
        time=time.time(),
        findings=[finding.as_dict() for finding in findings],
        answers=topics.answers() if topics else {},
        expect=asdict(expectation),
    )


if __name__ == "__main__":
    main()
