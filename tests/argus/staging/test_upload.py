"""Files of the controller as they arrive for an item: one tar, bounded, with what was announced."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from staging_snapshots import attached

from argus.staging.options import StagingError
from argus.staging.upload import Attachment, receive

FILES = {"0/train.jsonl": b"0123456789", "1/train.jsonl": b"", "2/a/b.py": b"b" * 3000}


def member(name: str, **fields: Any) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def test_files_arrive_in_a_directory_of_their_own(tmp_path: Path) -> None:
    announced, tar = attached(FILES)
    directory = receive(io.BytesIO(tar), Attachment(**announced), tmp_path / "datasets" / "sums")
    assert {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*.*")} == FILES
    assert directory.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    "wrong",
    [
        member("0/link", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member("0/hard", type=tarfile.LNKTYPE, linkname="0/train.jsonl"),
        member("0/device", type=tarfile.CHRTYPE),
        member("0/directory", type=tarfile.DIRTYPE),
        member("0/../../outside"),
        member("/etc/outside"),
        member("0//etc/outside"),
        member("0/a\x1b[2J.py"),
        member("0/more.py"),
        member("0/train.jsonl"),
        member("0/huge", size=1 << 50),
    ],
    ids=lambda info: repr(info.name),
)
def test_other_members_leave_nothing(tmp_path: Path, wrong: tarfile.TarInfo) -> None:
    announced, tar = attached(FILES)
    tar = tar.rstrip(b"\0") + b"\0" * (-len(tar.rstrip(b"\0")) % 512) + wrong.tobuf() + b"\0" * 1024
    with pytest.raises(StagingError):
        receive(io.BytesIO(tar), Attachment(**announced), tmp_path / "sums")
    assert list(tmp_path.iterdir()) == []


def test_other_content_than_was_announced_leaves_nothing(tmp_path: Path) -> None:
    announced, tar = attached(FILES)
    _announced, changed = attached({**FILES, "0/train.jsonl": b"012345678x"})
    for content in (changed, *(tar[:size] for size in (0, 100, 512, 700, 1600, 2048, 4000))):
        with pytest.raises(StagingError):
            receive(io.BytesIO(content), Attachment(**announced), tmp_path / "sums")
    with pytest.raises(StagingError, match="free"):
        receive(io.BytesIO(), Attachment("", 1 << 60), tmp_path / "sums")
    assert list(tmp_path.iterdir()) == []
