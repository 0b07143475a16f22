from __future__ import annotations

from dataclasses import replace

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import ERROR, WARNING, Finding
from ansible_collections.argus.verl.plugins.module_utils.cluster.system import Software
from ansible_collections.argus.verl.plugins.module_utils.preflight.checks import Context, Expectation
from ansible_collections.argus.verl.plugins.module_utils.preflight.judgement import Probed
from ansible_collections.argus.verl.plugins.module_utils.preflight.judgement import judged as judged_together
from ansible_collections.argus.verl.plugins.module_utils.preflight.machine import machine_findings
from samples import HEALTHY

PYTHON = "/opt/verl/bin/python3"
NCCL = "nvidia-nccl-cu12"
GOOD = Software(PYTHON, "3.12.3", {"ray": "2.60.0", "torch": "2.8.0", NCCL: "2.27.3", "verl": "0.9.1"})


def with_packages(answer: Software, **packages: str) -> Software:
    return replace(answer, packages={**answer.packages, **packages})


def judged(answer: Software, head_storage: str = "") -> list[Finding]:
    return machine_findings("h", replace(HEALTHY, software=answer), Expectation(head_storage=head_storage))


def differences(answers: dict[str, Software | None]) -> list[Finding]:
    probed = {
        name: Probed(Context(name, replace(HEALTHY, software=answer), Expectation()), [])
        for name, answer in answers.items()
    }
    return list(judged_together(list(probed), probed, "fast").findings)


def test_a_good_python() -> None:
    assert judged(GOOD) == []
    assert judged(with_packages(GOOD, ray="2.52.0")) == []
    assert judged(with_packages(GOOD, ray="3.0.0.dev0")) == []


def test_a_ray_without_tokens() -> None:
    (problem,) = judged(with_packages(GOOD, ray="2.51.9"))
    assert problem.what == f"{PYTHON} has Ray 2.51.9, which has no tokens"
    assert problem.todo == "install Ray 2.57 or later"


def test_a_ray_whose_head_keeps_no_tables() -> None:
    old = with_packages(GOOD, ray="2.56.1")
    (problem,) = judged(old, "rocksdb")
    assert "2.56.1" in problem.what and "cluster_head_storage: memory" in problem.todo
    assert judged(old, "memory") == []


def test_a_python_without_ray() -> None:
    (problem,) = judged(Software(PYTHON, "3.12.3"))
    assert problem.what == f"Ray is not installed for {PYTHON}"
    (problem,) = judged(Software(PYTHON, problem="No such file or directory"))
    assert (problem.key, problem.what) == ("software.python", f"{PYTHON} does not run: No such file or directory")


def test_equal_hosts_differ_in_nothing_and_a_head_needs_no_torch() -> None:
    head = Software(PYTHON, GOOD.python, {"ray": "2.60.0"})
    assert differences({"head": head, "gpu-0": GOOD, "gpu-1": GOOD, "engine": None}) == []


@pytest.mark.parametrize(
    ("other", "what", "severity"),
    [
        (replace(GOOD, python="3.11.2"), "Python is 3.11.2, on 2 of 3 machines it is 3.12.3", ERROR),
        (with_packages(GOOD, ray="2.59.0"), "Ray is 2.59.0, on 2 of 3 machines it is 2.60.0", ERROR),
        (with_packages(GOOD, torch="2.7.1"), "torch is 2.7.1, on 2 of 3 machines it is 2.8.0", WARNING),
        (
            with_packages(GOOD, **{NCCL: "2.26.2"}),
            "NCCL is 2.26.2, on 2 of 3 machines it is 2.27.3",
            WARNING,
        ),
        (with_packages(GOOD, verl="0.8.0"), "verl is 0.8.0, on 2 of 3 machines it is 0.9.1", WARNING),
    ],
)
def test_a_host_that_differs_is_named(other: Software, what: str, severity: str) -> None:
    (finding,) = differences({"gpu-0": GOOD, "gpu-1": other, "gpu-2": GOOD})
    assert (finding.where, finding.what, finding.severity) == ("gpu-1", what, severity)
