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
  - With O(trial), only runs one step of a trial of the shared root, as the nodes' user and never as root. All machines
    write to one directory there, C(.argus-verl-trial-TOKEN), in C(user) or else directly in the shared root.
  - The module changes nothing else on the machine.
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
      - The node of this host if it runs without a container (C(ray_node_runtime=process)), to report it with the
        machine. The keys are the arguments of C(inspect_host) in C(module_utils/cluster/process_host.py).
    type: dict
  expect:
    description:
      - What the machine must have. The keys are the fields of C(Expectation) in
        C(module_utils/preflight/checks.py). Without them, the module only finds problems that concern any machine,
        such as an engine that does not answer.
    type: dict
    default: {}
  trial:
    description: A step of a trial of the shared root that O(expect) names.
    type: dict
    suboptions:
      state:
        description:
          - V(written) writes a file. The first of O(trial.hosts) holds locks from then on.
          - V(compared) looks for the files of the other machines, and tries to get the locks.
          - V(removed) removes the directory, and those of interrupted trials. Then the process with the locks ends.
        type: str
        choices: [written, compared, removed]
        required: true
      token:
        description: A random name of the trial, of 16 hexadecimal digits or more.
        type: str
        required: true
      hosts:
        description: The names of all machines, among them O(host).
        type: list
        elements: str
        required: true
seealso:
  - module: community.docker.docker_host_info
"""

EXAMPLES = "# Internal: only this collection's roles and playbooks use this module.\n"

import platform
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.argus.verl.plugins.module_utils.cluster.names import problems
from ansible_collections.argus.verl.plugins.module_utils.cluster.probe import Probe
from ansible_collections.argus.verl.plugins.module_utils.cluster.process_host import inspect_host
from ansible_collections.argus.verl.plugins.module_utils.cluster.state import program_of
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import Expectation, mark_accepted
from ansible_collections.argus.verl.plugins.module_utils.preflight.machine import machine_findings
from ansible_collections.argus.verl.plugins.module_utils.preflight.trial import Trial, TrialError
from ansible_collections.argus.verl.plugins.module_utils.privileges import failure, without_root


def argument_spec() -> dict[str, Any]:
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
        "trial": {
            "type": "dict",
            "options": {
                "state": {"type": "str", "choices": ["written", "compared", "removed"], "required": True},
                "token": {"type": "str", "required": True, "no_log": False},
                "hosts": {"type": "list", "elements": "str", "required": True},
            },
        },
    }


def run_trial_step(shared_root: Path, host: str, state: str, token: str, hosts: list[str]) -> dict[str, Any]:
    """Run a step of a trial as the nodes' user, and return the result of the module. state: a method of Trial."""

    def work() -> dict[str, Any]:
        try:
            return {"trial": getattr(Trial(Path(), token, host, hosts), state)()}
        except TrialError as error:
            return failure(f"{shared_root}: {error}")
        except OSError as error:
            return failure(f"{error.strerror or error} ({Path(shared_root, error.filename or '')})")

    return without_root(shared_root, work)


def main() -> None:
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    options = module.params
    # This is the first module that a play runs on machines. With --limit, no play has checked the inventory.
    errors = list(problems(cluster_name=options["cluster"]))
    if errors:
        module.fail_json(msg=errors[0])
    if options["trial"]:
        module.exit_json(**run_trial_step(Path(options["expect"]["shared_root"]), options["host"], **options["trial"]))
    process = options["process"]
    expected = Expectation.from_json({**options["expect"], **({"python": process["python"]} if process else {})})
    token = Path(expected.token_file)
    paths = [expected.shared_root, *([str(token), str(token.parent)] if expected.token_file else [])]
    arguments = {name: options[name] for name in ("cluster", "engine", "names", "images")}
    machine = Probe().machine(**arguments, paths=list(filter(None, paths)), python=expected.python)
    if process:
        machine = replace(machine, process=inspect_host(**process))
    if expected.token_file:
        machine = replace(machine, program=program_of(token.parent))
    if machine.process and not expected.address:
        # The node uses the network of this host, and its address is known only on the host.
        expected = replace(expected, address=machine.process.address)
    findings = machine_findings(options["host"] or platform.node(), machine, expected)
    module.exit_json(
        machine=machine.to_json(),
        time=time.time(),
        findings=[mark_accepted(finding, options["accept"]).as_dict() for finding in findings],
        expect=asdict(expected),
    )


if __name__ == "__main__":
    main()
