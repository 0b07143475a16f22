"""Manifests, what is listed, and files as they arrive from the controller."""

from __future__ import annotations

import io
import os
import socket
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest
from staging_snapshots import attached
from staging_store import build_of, faults, no_build, stage

from argus.staging.listing import UNFINISHED, list_staged
from argus.staging.lock import Progress, hold_lock, lock_file
from argus.staging.manifest import MANIFEST, Status, read_manifest
from argus.staging.options import StagingError
from argus.staging.store import BuildRequest, BuildResult
from argus.staging.upload import Attachment, receive


def test_quick_verification_finds_changes_of_size_or_time(tmp_path: Path) -> None:
    def many(directory: Path, _progress: Progress) -> BuildResult:
        for name in ("changed", "fine", "longer", "missing", "touched"):
            (directory / name).write_text(name)
        return BuildResult()

    target = tmp_path / "tiny"
    stage(build_of(target, many))
    (target / "missing").unlink()
    (target / "longer").write_text("longer than before")
    (target / "changed").write_text("CHANGED")
    (target / "touched").write_text("touched")
    (target / "added").mkdir()
    (target / "added" / "more").write_text("")
    (target / "added" / "link").symlink_to(tmp_path)
    assert faults(target) == {
        "changed": "has other content",
        "longer": "has 18 bytes, not 6",
        "missing": "is missing",
        "added/link": "is not in the manifest",
        "added/more": "is not in the manifest",
    }


def test_what_is_no_change(tiny: Path) -> None:
    for name in ("__pycache__/a.cpython-311.pyc", "more/b.pyc", ".git/HEAD", "verl.egg-info/PKG-INFO"):
        (tiny / name).parent.mkdir(exist_ok=True)
        (tiny / name).write_text("")
    assert stage(build_of(tiny, no_build), full=True).status == Status.EXISTS
    # Some editors keep the modification time.
    stat = (tiny / "train.parquet").stat()
    (tiny / "train.parquet").write_text("ROWS")
    os.utime(tiny / "train.parquet", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert stage(build_of(tiny, no_build)).status == Status.EXISTS
    with pytest.raises(StagingError, match=r"train\.parquet has other content"):
        stage(build_of(tiny, no_build), full=True)
    # Its content counts, if its time is another one.
    (tiny / "train.parquet").write_text("rows")
    os.utime(tiny / "train.parquet")
    assert stage(build_of(tiny, no_build)).status == Status.EXISTS


@pytest.mark.parametrize("text", ["{", "[]", '{"files": []}', '{"files": {"a": 1}}', '{"files": {"a": {"size": 1}}}'])
def test_other_text_is_not_a_manifest(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(StagingError, match=r"manifest\.json: is not .* and stage it again"):
        read_manifest(tmp_path)


def test_what_a_manifest_could_not_be_read_with_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(StagingError, match="cannot be described in a manifest: source is not a text of printable"):
        stage(build_of(tmp_path / "one", lambda _directory, _progress: BuildResult({"source": "a\x1b[2J"})))
    assert not (tmp_path / "one").exists()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """The place of a dataset in a shared root."""
    path = tmp_path / "datasets" / "sums"
    path.parent.mkdir()
    return path


def put(target: Path) -> None:
    def build(directory: Path, progress: Progress) -> BuildResult:
        (directory / "train.parquet").write_bytes(bytes(1000))
        return BuildResult({"source": "somewhere", "rows": {"train": 8}})

    stage(BuildRequest("rl_dataset", target.name, target, build))


def entries(target: Path, verify: str = "no") -> list[dict[str, Any]]:
    return [entry.as_dict() for entry in list_staged(target.parents[1], verify)]


def test_a_running_build_is_listed_with_its_progress(target: Path) -> None:
    with hold_lock(target) as progress:
        progress.begin("downloading acme/sums", 4 << 20)
        progress.add(1 << 20)
        progress.write()
        building = target.with_name(".sums.staging-0123abcd")
        (building / "below").mkdir(parents=True)
        (building / "below" / "file").write_bytes(bytes(300))
        expected = f"downloading acme/sums on {socket.gethostname()}, 1 MiB of 4 MiB (25 %)"
        # The thread that writes the progress every second may have started before.
        give_up = time.monotonic() + 10
        while not entries(target)[0].get("source", "").startswith(expected):
            assert time.monotonic() < give_up
            time.sleep(0.05)
        (busy,) = entries(target)
    assert (busy["kind"], busy["name"], busy["path"], busy["problems"]) == (UNFINISHED, "sums", str(target), [])
    assert busy["bytes"] >= 300


def test_leftovers_are_listed_until_the_target_is_staged(target: Path) -> None:
    target.with_name(".sums.staging-0123abcd").mkdir()
    lock_file(target).write_text('{"host": "head-1", "pid": 17, "step": "", "done": 0, "total": 0}')
    # Others have made this one.
    (target.parent / ".snapshot").mkdir()
    (left,) = entries(target)
    assert left["problems"] == ["was left unfinished by head-1, process 17: .sums.lock, .sums.staging-0123abcd"]
    assert "source" not in left
    put(target)
    assert [entry["kind"] for entry in entries(target)] == ["rl_dataset"]


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
    "invalid",
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
def test_other_members_leave_nothing(tmp_path: Path, invalid: tarfile.TarInfo) -> None:
    announced, tar = attached(FILES)
    tar = tar.rstrip(b"\0") + b"\0" * (-len(tar.rstrip(b"\0")) % 512) + invalid.tobuf() + b"\0" * 1024
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
