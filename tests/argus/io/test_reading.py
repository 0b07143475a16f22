"""What a job can put where a file is expected."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from argus.io import reading
from argus.io.reading import MIB, UnreadableError, list_directory, read_bytes, read_mapping


def refused(root: Path, name: str = "a/file") -> str:
    started = time.monotonic()
    with pytest.raises(UnreadableError) as error:
        read_mapping(root / name, MIB)
    assert time.monotonic() - started < 30
    assert str(root) in error.value.path
    return error.value.why


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root" / "a").mkdir(parents=True)
    return tmp_path / "root"


def test_what_a_file_is_not(root: Path) -> None:
    os.mkfifo(root / "a" / "fifo")
    assert refused(root, "a/fifo") == "is not a regular file"
    with (root / "a" / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    assert refused(root, "a/sparse") == "has more than 1 MiB"
    (root / "a" / "file").write_bytes(b"12345")
    assert read_bytes(root / "a/file", 5) == b"12345"
    with pytest.raises(UnreadableError):
        read_bytes(root / "a/file", 4)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "is not JSON"),
        (b"[]", "is not a mapping"),
        *((content, "is nested too deeply") for content in (b"[" * 200_000, b'{"a": ' * 65 + b"1" + b"}" * 65)),
        *((content, "is not a number") for content in (b'{"a": NaN}', b'{"a": 1e999}')),
        (b"\xff", "is not UTF-8"),
        (b'{"a": "\\ud800"}', "contains null bytes or lone surrogates"),
    ],
)
def test_other_content(root: Path, content: bytes, why: str) -> None:
    (root / "a" / "file").write_bytes(content)
    assert why in refused(root)


def test_a_listing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root / "a" / "file").touch()
    (root / "a" / "sub").mkdir()
    (root / "a" / "link").symlink_to("sub")
    assert sorted(list_directory(root / "a")) == ["file", "link", "sub"]
    assert list_directory(root / "a", lambda entry: entry.is_dir(follow_symlinks=False)) == ["sub"]
    assert list_directory(root / "missing") == []
    monkeypatch.setattr(reading, "MAX_DIRECTORY_ENTRIES", 3)
    assert len(list_directory(root / "a")) == 3
    (root / "a" / "4").touch()
    for name in ("a", "a/file", "a\0b"):
        with pytest.raises(UnreadableError, match="cannot be listed"):
            list_directory(root / name)
