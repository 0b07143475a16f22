"""Copies of directories."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hub import model
from staging_models import files, manifest, of_directory

from argus.staging import files as staging_files
from argus.staging.manifest import MANIFEST, Status
from argus.staging.options import StagingError

pytestmark = pytest.mark.usefixtures("environment")


@pytest.mark.parametrize("error", [None, errno.EXDEV, errno.ENOSYS, "at once"])
def test_a_directory_is_copied(
    root: Path, directory: Path, error: int | str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if error is not None:
        # A file system that cannot do it between two files, and one that reports that nothing is left.
        def copy(*arguments: object) -> int:
            if isinstance(error, int):
                raise OSError(error, os.strerror(error))
            return 0

        monkeypatch.setattr(os, "copy_file_range", copy)
    staged = of_directory(root, directory)
    assert staged.status == Status.STAGED
    target = Path(staged.path)
    assert files(target) == sorted([*model(), MANIFEST])
    for name, content in model().items():
        assert not (target / name).is_symlink()
        assert (target / name).read_bytes() == content
        assert manifest(target)["files"][name]["sha256"] == hashlib.sha256(content).hexdigest()
    assert manifest(target)["source"] == str(directory)
    assert of_directory(root, directory, full=True).status == Status.EXISTS


def test_a_directory_that_changes_meanwhile_is_refused(
    root: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy(source: Path, target: Path, count: Callable[[int], None]) -> None:
        shutil.copyfile(source, target)
        with source.open("ab") as file:
            file.write(b"more")

    monkeypatch.setattr(staging_files, "copy_file", copy)
    with pytest.raises(StagingError, match="changed while it was copied"):
        of_directory(root, directory)
    assert list((root / "common/models").iterdir()) == []
