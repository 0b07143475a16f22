"""Names and the shared root."""

from __future__ import annotations

from pathlib import Path

import pytest

from argus.staging.options import (
    StagingError,
    check_name,
    check_shared_root,
)


def test_a_missing_shared_root_is_not_created(tmp_path: Path) -> None:
    assert check_shared_root(tmp_path) == tmp_path
    with pytest.raises(StagingError, match=r"is not a directory here\. Mount or create it first"):
        check_shared_root(tmp_path / "not-mounted")


@pytest.mark.parametrize("name", ["", ".hidden", "..", "a/b", "a b", "Tiny", "tiny\n", "a" * 64])
def test_bad_names(name: str) -> None:
    with pytest.raises(StagingError, match=r"(?s)^datasets: the name .* is not allowed"):
        check_name("datasets", name)
