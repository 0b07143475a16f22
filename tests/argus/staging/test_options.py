"""Names and the shared root."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus.staging.options import (
    NAME_WITH_CAPITALS,
    StagingError,
    check_name,
    check_shared_root,
)


def test_a_missing_shared_root_is_not_created(tmp_path: Path) -> None:
    assert check_shared_root(tmp_path) == tmp_path
    with pytest.raises(StagingError, match=r"is not a directory here\. Mount or create it first"):
        check_shared_root(tmp_path / "not-mounted")


@pytest.mark.parametrize("name", ["tiny", "0.9.1", "gsm8k_tiny-2", "a" * 63])
def test_good_names(name: str) -> None:
    assert check_name("datasets", name) == name


@pytest.mark.parametrize("name", ["", ".hidden", "..", "a/b", "a b", "Tiny", "tiny\n", "a" * 64])
def test_bad_names(name: str) -> None:
    with pytest.raises(StagingError, match=r"(?s)^datasets: the name .* is not allowed"):
        check_name("datasets", name)


def test_models_and_code_ids_may_have_capitals() -> None:
    assert check_name("models", "Qwen2.5-0.5B", NAME_WITH_CAPITALS) == "Qwen2.5-0.5B"
