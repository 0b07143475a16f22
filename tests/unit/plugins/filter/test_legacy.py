from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils.filters.legacy import FILTERS


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
    assert FILTERS["legacy_names"](given) == names


def test_the_report_of_all_machines() -> None:
    one: dict[str, Any] = {"name": "old-ray", "kind": "container", "owner": "root", "seconds": 1.0, "work": ["ray::f"]}
    one |= {"ports": [], "processes": []}
    hostvars = {
        "gpu-0": {"__ray_node_legacy": {"found": [one]}},
        "gpu-1": {"__ray_node_legacy": {"failed": True}},
        "c": {},
    }
    report = FILTERS["legacy_report"](["gpu-0", "gpu-1", "c"], hostvars, "old-ray", "")
    assert [row[:2] for row in report["rows"]] == [["gpu-0", "old-ray"]]
    assert [finding["where"] for finding in report["findings"]] == ["gpu-0"]
    assert FILTERS["legacy_report"](["gpu-0"], hostvars, "old-ray", "[old-ray]")["findings"] == []
