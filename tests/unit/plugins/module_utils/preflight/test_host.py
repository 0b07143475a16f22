from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import NOTE, WARNING
from ansible_collections.argus.verl.plugins.module_utils.cluster.engine import EngineStatus, Image
from ansible_collections.argus.verl.plugins.module_utils.cluster.machine import Machine
from ansible_collections.argus.verl.plugins.module_utils.preflight import host
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import Problem
from ansible_collections.argus.verl.plugins.module_utils.preflight.host import GIB, Host
from ansible_collections.argus.verl.plugins.module_utils.preflight.reading import Process
from preflight_tree import OURS, Tree, context, differences
from samples import DOCKER, HEALTHY

BARE = replace(HEALTHY, engine=replace(DOCKER, status=EngineStatus.NONE))
GOOD = Host("6.8.0-45-generic", "1048576", "unlimited", 100 * GIB, 50 * GIB)
LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max locked memory         65536                {1}            bytes
Max open files            1024                 {0}               files
"""


def judged(answer: Host, machine: Any = HEALTHY) -> list[Problem]:
    return list(host.judge(answer, context(machine=machine)))


def only(answer: Host, machine: Any = HEALTHY) -> Problem:
    problems = judged(answer, machine)
    assert len(problems) == 1, problems
    return problems[0]


def test_a_machine_that_answers(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.file("/proc/sys/kernel/osrelease", "6.8.0-45-generic\n")
    tree.file("/proc/self/limits", LIMITS.format(4096, 8388608))
    tree.process(31, "gcs_server", container=OURS)
    tree.process(32, "raylet")
    tree.process(33, "python3")
    tree.file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n")
    (tree.root / "tmp").mkdir()
    monkeypatch.setattr(Path, "home", lambda: Path("/home/ml"))
    tree.file("/home/ml/.ray/auth_token")
    found = host.read(tree.reader())
    assert found == Host(
        "6.8.0-45-generic",
        "4096",
        "8388608",
        found.tmp_total_bytes,
        found.tmp_free_bytes,
        "powersave",
        (),
        (Process(31, "gcs_server", "S", OURS), Process(32, "raylet", "S", "")),
        "/home/ml/.ray/auth_token",
    )
    assert found.tmp_total_bytes > found.tmp_free_bytes > 0


def test_an_empty_machine(tree: Tree) -> None:
    assert host.read(tree.reader()) == Host("")
    assert judged(Host("")) == []


def test_limits_are_those_of_the_engine(tree: Tree) -> None:
    tree.file("/proc/self/limits", LIMITS.format(4096, 8388608))
    tree.file("/proc/9/limits", LIMITS.format(1048576, "unlimited"))
    tree.process(9, "dockerd")
    found = host.read(tree.reader())
    assert (found.open_files, found.locked_memory) == ("1048576", "unlimited")
    # Another user may not read them.
    tree.file("/proc/9/limits", "")
    assert host.read(tree.reader()).open_files == "4096"


def test_a_process_is_stuck_if_it_stays_in_the_kernel(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.process(5, "nvidia-smi", "D")
    tree.process(6, "dd", "D")
    monkeypatch.setattr(host.time, "sleep", lambda _seconds: tree.process(6, "dd", "R"))
    assert host.read(tree.reader()).stuck == (Process(5, "nvidia-smi", "D"),)


@pytest.mark.parametrize("driver", ["intel_pstate", "amd-pstate-epp"])
def test_powersave_of_the_cpu_itself_is_fast(tree: Tree, driver: str) -> None:
    tree.file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n")
    tree.file("/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", f"{driver}\n")
    assert host.read(tree.reader()).governor == ""


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
    problem = only(replace(GOOD, **changes))
    finding = problem.finding("gpu-1")
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

    def with_image(digit: str) -> Machine:
        return replace(HEALTHY, images={reference: Image("sha256:" + digit * 64, {}) if digit else None})

    contexts = {name: context(name, machine=with_image(digit)) for name, digit in zip("abcd", "1171", strict=True)}
    contexts["d"] = context("d", machine=with_image(""))
    answers = dict.fromkeys(contexts, GOOD) | {"d": replace(GOOD, kernel="5.15")}
    kernel, images = sorted(differences(host.TOPIC, answers, contexts), key=lambda each: each.key, reverse=True)
    assert (kernel.where, kernel.key) == ("d", "host.kernel")
    assert kernel.what == "the kernel is 5.15, on 3 of 4 machines it is 6.8.0-45-generic"
    assert (images.where, images.key) == ("c", "host.image")
    assert images.what == (f"the image {reference} is 777777777777, on 2 of 3 machines it is 111111111111")


@pytest.mark.parametrize("state", ["Z", "X"])
def test_a_process_that_ends_meanwhile_is_none_of_the_machine(tree: Tree, state: str) -> None:
    """Its cgroup cannot be read any more."""
    tree.process(32, "raylet", state)
    tree.file("/proc/32/cgroup", "")
    assert host.read(tree.reader()).ray == ()


def test_a_process_without_a_cgroup_is_one_of_the_machine(tree: Tree) -> None:
    tree.process(32, "raylet")
    tree.file("/proc/32/cgroup", "")
    assert host.read(tree.reader()).ray == (Process(32, "raylet", "S", ""),)
