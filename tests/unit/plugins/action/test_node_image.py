from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.action.node_image import progress

GIB = 2**30


@pytest.mark.parametrize(
    ("state", "result", "line"),
    [
        ("built", {"seconds": 61.4}, "x:1: built on gpu-0: in 61 s"),
        ("saved", {"seconds": 4.0, "bytes": 2 * GIB}, "x:1: saved on gpu-0: 2.0 GiB in 4 s, 512 MiB/s"),
        (
            "loaded",
            {"seconds": 8.0, "bytes": 2 * GIB},
            "x:1: loaded on gpu-0, machine 2 of 3: 2.0 GiB in 8 s, 256 MiB/s",
        ),
        # Of a small image, the clock tells nothing.
        ("saved", {"seconds": 0.0, "bytes": 1024}, "x:1: saved on gpu-0: 1 KiB in 0 s, 10 KiB/s"),
    ],
)
def test_lines_of_progress(state: str, result: dict[str, Any], line: str) -> None:
    assert progress("x:1", state, "gpu-0", {"number": 2, "count": 3}, result) == line
