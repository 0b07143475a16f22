from __future__ import annotations

import pytest

from argus.common.shared_root import archive_path, resolve_path, under_root


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/private/x", True),
        ("/private/x/y", True),
        ("/private", False),
        ("/private/x/../../etc", False),
        ("/privateer/x", False),
        ("private/x", False),
    ],
)
def test_whether_a_path_is_under_the_root(path: str, answer: bool) -> None:
    assert under_root(path, "/private") is answer


def test_a_name_is_resolved_in_its_home_directory() -> None:
    assert resolve_path("gsm8k", "/private", "datasets") == "/private/datasets/gsm8k"
    assert resolve_path("/mnt/gsm8k", "/private", "datasets") == "/mnt/gsm8k"


def test_the_path_of_an_archive() -> None:
    assert archive_path("/private", "grpo-1") == "/private/jobs/grpo-1"
