from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import NOTE, WARNING, Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import EngineStatus, Image
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine
from ansible_collections.argus.verl.plugins.module_utils.cluster.processes import Process
from ansible_collections.argus.verl.plugins.module_utils.cluster.system import System
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import Context, Expectation
from ansible_collections.argus.verl.plugins.module_utils.preflight.host import GIB
from ansible_collections.argus.verl.plugins.module_utils.preflight.judgement import Probed
from ansible_collections.argus.verl.plugins.module_utils.preflight.judgement import judged as judged_together
from ansible_collections.argus.verl.plugins.module_utils.preflight.machine import machine_findings
from samples import DOCKER, HEALTHY

OURS = "a" * 64
BARE = replace(HEALTHY, engine=replace(DOCKER, status=EngineStatus.NONE))
GOOD = System("6.8.0-45-generic", "1048576", "unlimited", 100 * GIB, 50 * GIB)


def judged(answer: System, machine: Machine = HEALTHY) -> list[Finding]:
    return machine_findings("gpu-1", replace(machine, system=answer), Expectation())


def only(answer: System, machine: Machine = HEALTHY) -> Finding:
    (finding,) = judged(answer, machine)
    return finding


def test_a_healthy_machine_has_no_problem() -> None:
    assert judged(GOOD) == judged(GOOD, BARE) == []


@pytest.mark.parametrize(
    ("changes", "key", "what"),
    [
        (
            {"stuck": (Process(5, "nvidia-smi", "D"),)},
            "host.stuck",
            "processes that hang in the kernel: 1, such as nvidia-smi (pid 5)",
        ),
        ({"open_files": "8191"}, "host.nofile", "at most 8191 open files, expected at least 8192"),
        ({"governor": "powersave"}, "host.governor", 'the CPUs have the governor "powersave"'),
        (
            {"ray": (Process(7, "raylet"), Process(8, "raylet", "S", OURS))},
            "host.ray",
            "Ray runs on the machine itself: raylet (pid 7)",
        ),
        (
            {"tmp_free_bytes": GIB - 1, "tmp_total_bytes": 4 * GIB},
            "host.tmp",
            "1.0 GiB of 4.0 GiB are free in /tmp, expected 1.0 GiB",
        ),
    ],
)
def test_problems(changes: dict[str, Any], key: str, what: str) -> None:
    finding = only(replace(GOOD, **changes))
    assert (finding.key, finding.what, finding.severity, bool(finding.todo)) == (key, what, WARNING, True)


@pytest.mark.parametrize(
    "changes",
    [
        {"open_files": "8192"},
        {"open_files": "unlimited"},
        {"tmp_free_bytes": GIB, "tmp_total_bytes": 4 * GIB},
        {"ray": (Process(8, "raylet", "S", OURS),)},
        {"governor": "performance"},
    ],
)
def test_what_is_no_problem(changes: dict[str, Any]) -> None:
    assert judged(replace(GOOD, **changes)) == []


def test_without_containers_other_rules_hold() -> None:
    assert judged(replace(GOOD, ray=(Process(7, "raylet"),)), BARE) == []
    assert only(replace(GOOD, locked_memory="65536"), BARE).key == "host.memlock"
    assert judged(replace(GOOD, locked_memory="65536"), replace(BARE, hcas=[])) == []
    assert judged(replace(GOOD, locked_memory="65536")) == []
    # Ray stops writing to a disk that is 95 % full.
    nearly_full = replace(GOOD, tmp_free_bytes=5 * GIB - 1)
    assert only(nearly_full, BARE).key == "host.tmp"
    assert judged(replace(nearly_full, tmp_free_bytes=5 * GIB), BARE) == []
    assert judged(nearly_full) == []


def test_a_stray_token_matters_where_ray_runs_as_that_user() -> None:
    found = replace(GOOD, token="/root/.ray/auth_token")
    assert only(found).severity == NOTE
    assert only(found, BARE).severity == WARNING


def test_machines_are_compared() -> None:
    reference = "image:1"

    def machine(name: str, digit: str, kernel: str = "6.8") -> Probed:
        images = {reference: Image("sha256:" + digit * 64, {}) if digit else None}
        return Probed(
            Context(name, replace(HEALTHY, images=images, system=replace(GOOD, kernel=kernel)), Expectation()), []
        )

    probed = {"a": machine("a", "1"), "b": machine("b", "1"), "c": machine("c", "7"), "d": machine("d", "", "5.15")}
    kernel, image = judged_together(list(probed), probed, "fast").findings
    assert (kernel.where, kernel.key) == ("d", "host.kernel")
    assert kernel.what == "the kernel is 5.15, on 3 of 4 machines it is 6.8"
    assert (image.where, image.key) == ("c", "host.image")
    assert image.what == f"the image {reference} is 777777777777, on 2 of 3 machines it is 111111111111"
