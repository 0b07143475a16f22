from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils import streams
from ansible_collections.argus.verl.plugins.plugin_utils.streams import (
    BLOCK,
    READ_PART,
    fetch_file,
    read_command,
    write_command,
)


def sh(command: str, data: bytes = b"") -> bytes:
    return subprocess.run(["/bin/sh", "-c", command], input=data, capture_output=True, check=True).stdout


def test_parts_of_a_file_have_their_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "WRITE_BLOCKS", 16)
    monkeypatch.setattr(streams, "READ_BLOCKS", 2)
    write_part, read_part = 16 * BLOCK, 2 * BLOCK
    file = tmp_path / "a file"
    first, second = b"\0\xff" * (write_part // 2), b"\r\n\x1b end"
    file.write_bytes(b"longer than before" * write_part)
    sh(write_command(str(file), 0), first)
    sh(write_command(str(file), 1), second)
    # A connection may send it again.
    sh(write_command(str(file), 1), second)
    assert file.read_bytes() == first + second
    whole = first + second
    for number in range(len(whole) // read_part + 2):
        assert sh(read_command(str(file), number)) == whole[number * read_part : (number + 1) * read_part]


def test_an_empty_file_reads_no_input(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"before")
    with subprocess.Popen(["/bin/sh", "-c", write_command(str(file), 0, empty=True)], stdin=subprocess.PIPE) as writer:
        # Its input stays open.
        assert writer.wait(60) == 0
    assert file.read_bytes() == b""


@pytest.mark.parametrize("size", [0, 1, READ_PART, READ_PART + 1])
def test_a_file_that_stayed_as_it_was_is_whole(tmp_path: Path, size: int) -> None:
    (tmp_path / "there").write_bytes(b"x" * size)
    fetch_file(lambda command, _data: sh(command), str(tmp_path / "there"), str(tmp_path / "here"), size)
    assert (tmp_path / "here").stat().st_size == size


def test_a_file_that_was_replaced_is_read_to_its_size_and_no_further(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    with there.open("wb") as file:
        file.truncate(1 << 40)
    fetch_file(lambda command, _data: sh(command), str(there), str(here), READ_PART + 5)
    assert here.stat().st_size == 2 * READ_PART
    there.unlink()
    os.mkfifo(there)
    fetch_file(lambda command, _data: sh(command), str(there), str(here), READ_PART + 5)
    assert here.stat().st_size == 0
    there.unlink()
    there.symlink_to("/dev/zero")
    with pytest.raises(subprocess.CalledProcessError):
        fetch_file(lambda command, _data: sh(command), str(there), str(here), READ_PART + 5)
