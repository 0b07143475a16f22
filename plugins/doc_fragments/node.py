# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations


class ModuleDocFragment:
    """The option `node` of modules that call the program `argus`: the Ray node in which it runs."""

    DOCUMENTATION = r"""
options:
  node:
    description: The node in which the program runs. By default, the container with the host's name in the inventory.
    type: dict
    suboptions:
      name:
        description: The name of the node.
        type: str
        required: true
      machine:
        description: The machine that it runs on, for messages.
        type: str
        default: ""
      cluster:
        description: The name of its cluster.
        type: str
        default: ""
      engine:
        description: The container engine on the machine, V(docker), V(podman) or the absolute path of one.
        type: str
        default: docker
      images:
        description:
          - Images of nodes. If the node does not run, a new container of the first one on the machine runs the program.
        type: list
        elements: str
        default: []
      user:
        description:
          - The user of such a container, as uid:gid. By default Ansible's user, and C(61000:61000) if that is root.
        type: str
        default: ""
      shared_root:
        description: The path of the shared root in the node.
        type: str
        default: /private
      shared_root_source:
        description: The path of the shared root on the machine, which containers of nodes mount.
        type: str
        default: ""
      address:
        description: The address of the Jobs API on the node. By default, the address in the node's environment.
        type: str
        default: ""
      registry:
        description: The directory on the machine that records which jobs the cluster has submitted.
        type: str
        default: ""
      directory:
        description: The directory of a node that is a process instead of a container.
        type: str
        default: ""
      python:
        description: The path of the Python of a node that is a process.
        type: str
        default: ""
"""
