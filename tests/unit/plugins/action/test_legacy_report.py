from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.action.legacy_report import names_of
from ansible_collections.argus.verl.plugins.module_utils.cluster.legacy import legacy_report


@pytest.mark.parametrize(
    ("given", "names"),
    [
        (["a", "b"], ["a", "b"]),
        ("a,b", ["a", "b"]),
        ("[a, 'b', \"c\"]", ["a", "b", "c"]),
        ("", []),
        ("[]", []),
        ([], []),
        (["ray@alice", " "], ["ray@alice"]),
    ],
)
def test_names(given: Any, names: list[str]) -> None:
    assert names_of(given) == names


def test_the_report_of_all_machines() -> None:
    one: dict[str, Any] = {"name": "old-ray", "kind": "container", "owner": "root", "seconds": 1.0, "work": ["ray::f"]}
    one |= {"ports": [], "processes": []}
    report = legacy_report({"gpu-0": [one], "gpu-1": [], "c": []}, ["old-ray"], [])
    assert [row[:2] for row in report["rows"]] == [["gpu-0", "old-ray"]]
    assert [finding.where for finding in report["findings"]] == ["gpu-0"]
    assert legacy_report({"gpu-0": [one]}, ["old-ray"], ["old-ray"])["findings"] == []
