from __future__ import annotations

import pytest

from argus.common.shared_root import full_path, is_under_root


@pytest.mark.parametrize("path", ["/private", "/private/x/../../etc", "/privateer/x", "private/x"])
def test_a_path_that_leads_elsewhere_is_not_under_the_root(path: str) -> None:
    assert is_under_root("/private/x/y", "/private") and not is_under_root(path, "/private")


def test_a_name_is_resolved_in_its_home_directory() -> None:
    assert full_path("gsm8k", "/private", "datasets") == "/private/datasets/gsm8k"
    assert full_path("/mnt/gsm8k", "/private", "datasets") == "/mnt/gsm8k"
