from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import ERROR, WARNING
from ansible_collections.argus.verl.plugins.module_utils.preflight.judgement import clock_bounds, clock_findings


def probed(ahead: float, before: float = 1.0, after: float = 0.5) -> dict[str, Any]:
    """A machine whose clock is ahead, with `before` and `after` seconds for the way there and back."""
    sent = 1000.0
    return {"time": sent + before + ahead, "clock": {"sent": sent, "received": sent + before + after}}


def test_time_on_the_way_is_not_taken_for_a_difference() -> None:
    assert clock_bounds(probed(0)) == pytest.approx((-0.5, 1))
    invalid: list[dict[str, Any]] = [{}, {"time": 1}, {"time": 1, "clock": None}]
    assert [clock_bounds(host) for host in (*invalid, {"time": "x", "clock": {"sent": 0, "received": 1}})] == [None] * 4
    machines = {"ctl": probed(0, 0, 0), "gpu-0": probed(0, before=20, after=30), "gpu-1": probed(10, 2, 3)}
    (ahead,) = clock_findings(machines, "ctl")
    (behind,) = clock_findings({"ctl": probed(0, 0, 0), "gpu-1": probed(-10, 2, 3)}, "ctl")
    assert ahead.where == "gpu-1" and "7 s ahead" in ahead.problem and "8 s behind" in behind.problem


@pytest.mark.parametrize(
    ("ahead", "severities"), [(6.4, []), (6.6, [WARNING]), (31.4, [WARNING]), (31.6, [ERROR]), (-31.6, [ERROR])]
)
def test_clock_that_differs(ahead: float, severities: list[str]) -> None:
    machines = {"ctl": probed(0), "gpu-0": probed(ahead), "gpu-1": probed(0.2)}
    assert [(finding.where, finding.severity) for finding in clock_findings(machines, "ctl")] == [
        ("gpu-0", severity) for severity in severities
    ]
    # A head's machine that did not answer cannot be compared, and the clock of the controller does not matter.
    assert list(clock_findings({"gpu-0": probed(ahead)}, "ctl")) == []
    assert list(clock_findings({"ctl": probed(3600), "gpu-0": probed(3600, before=4)}, "ctl")) == []
