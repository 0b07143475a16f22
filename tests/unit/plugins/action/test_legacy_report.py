from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.action.legacy_report import names_of


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
