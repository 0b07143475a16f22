from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import ERROR, WARNING
from ansible_collections.argus.verl.plugins.module_utils.preflight.judgement import clock_bounds, clock_findings


def probed(ahead: float, before: float = 1.0, after: float = 0.5) -> dict[str, Any]:
    """A machine whose clock is ahead, and that took `before` and `after` seconds on the way."""
    sent = 1000.0
    return {"time": sent + before + ahead, "clock": {"sent": sent, "received": sent + before + after}}


def test_time_on_the_way_is_not_taken_for_a_difference() -> None:
    assert clock_bounds(probed(0)) == pytest.approx((-0.5, 1))
    machines = {"ctl": probed(0, 0, 0), "gpu-0": probed(0, before=20, after=30), "gpu-1": probed(10, 2, 3)}
    (found,) = clock_findings(machines, "ctl")
    assert (found.where, found.what) == ("gpu-1", "its clock is at least 7 s ahead of that of ctl")
    (found,) = clock_findings({"ctl": probed(0, 0, 0), "gpu-1": probed(-10, 2, 3)}, "ctl")
    assert found.what == "its clock is at least 8 s behind that of ctl"


def test_clock_of_the_controller_does_not_matter() -> None:
    # All machines agree, and the controller is an hour late.
    machines = {"ctl": probed(3600), "gpu-0": probed(3600, before=4)}
    assert list(clock_findings(machines, "ctl")) == []


@pytest.mark.parametrize(("ahead", "severity"), [(7.9, WARNING), (31.4, WARNING), (31.6, ERROR), (-31.6, ERROR)])
def test_clock_that_differs(ahead: float, severity: str) -> None:
    machines = {"ctl": probed(0), "gpu-0": probed(ahead), "gpu-1": probed(0.2)}
    (found,) = clock_findings(machines, "ctl")
    assert (found.where, found.severity) == ("gpu-0", severity)


def test_limit() -> None:
    assert list(clock_findings({"ctl": probed(0), "gpu-0": probed(6.4)}, "ctl")) == []
    assert len(list(clock_findings({"ctl": probed(0), "gpu-0": probed(6.6)}, "ctl"))) == 1
    # A head's machine that did not answer cannot be compared.
    assert list(clock_findings({"gpu-0": probed(60)}, "ctl")) == []


@pytest.mark.parametrize(
    "answer", [{}, {"time": 1}, {"time": "x", "clock": {"sent": 0, "received": 1}}, {"time": 1, "clock": None}]
)
def test_answer_without_times(answer: dict[str, object]) -> None:
    assert clock_bounds(answer) is None
