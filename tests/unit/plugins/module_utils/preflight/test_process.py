"""Findings about the host of a node without a container."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import Expectation
from ansible_collections.argus.verl.plugins.module_utils.preflight.machine import machine_findings
from samples import PROCESS_HOST, machine


def problems(of: Machine) -> list[Finding]:
    findings = machine_findings("gpu-0", of, Expectation())
    return [finding for finding in findings if finding.key.startswith("process.")]


def test_a_host_that_is_as_it_should_be_has_no_problems() -> None:
    assert problems(machine(process=PROCESS_HOST)) == []
    assert problems(machine(uid=0)) == []


def test_problems_of_a_host() -> None:
    others = ["raylet 7 of uid 1003", *(f"gcs_server {pid} of uid 0" for pid in range(10, 14))]
    host = replace(PROCESS_HOST, ray="", address="", others=others)
    found = problems(machine(uid=0, process=host))
    assert [(finding.what.split(",")[0], finding.severity, finding.key) for finding in found] == [
        ("Ansible is root here", "error", "process.root"),
        ("the command ray is neither beside ray_node_python nor on the system's PATH", "error", "process.ray"),
        ("no address was found at which other nodes reach this host", "error", "process.address"),
        ("another Ray runs on this host (raylet 7 of uid 1003", "warning", "process.other_ray"),
    ]
    assert "gcs_server 12 of uid 0 and 1 more); it is left alone" in found[3].what


def test_four_others_are_all_listed() -> None:
    host = replace(PROCESS_HOST, others=[f"raylet {pid} of uid 0" for pid in range(4)])
    (problem,) = problems(machine(process=host))
    assert "raylet 3 of uid 0); it" in problem.what
