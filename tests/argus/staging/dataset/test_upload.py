"""Files of the controller: how they arrive, and when they are the same."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import Any

import pytest

from argus.staging.dataset.options import DatasetOptions
from argus.staging.dataset.sources import no_match, source_of
from argus.staging.dataset.upload import (
    Inbox,
    UndecidedError,
    Upload,
    UploadFile,
)
from argus.staging.errors import StagingError
from argus.staging.lock import Progress
from argus.staging.manifest import Manifest

CONTENT = b"0123456789"
SHA = hashlib.sha256(CONTENT).hexdigest()
FILE = UploadFile("/home/ann/train.jsonl", len(CONTENT), 7, SHA)


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox(tmp_path, "sums")


def append(inbox: Inbox, content: bytes, offset: int, sha256: str = SHA, name: str = "train.jsonl") -> int:
    part = inbox.path.parents[1] / "part"
    part.write_bytes(content)
    with FileIO(part, "r") as chunk:
        return inbox.append(sha256, name, offset, chunk)


def test_parts_are_appended_once_and_in_order(inbox: Inbox) -> None:
    assert inbox.append(SHA, "train.jsonl", 0, None) == 0
    assert append(inbox, b"01234", 0) == 5
    # The same part again, and one that is too early: nothing is written.
    assert append(inbox, b"01234", 0) == 5
    assert append(inbox, b"89", 8) == 5
    assert inbox.received(FILE) == 5
    assert append(inbox, b"56789", 5) == 10
    assert inbox.place(FILE).read_bytes() == CONTENT
    for path, mode in ((inbox.path, 0o700), (inbox.place(FILE).parent, 0o700), (inbox.place(FILE), 0o600)):
        assert path.stat().st_mode & 0o777 == mode
    inbox.remove()
    assert not inbox.path.exists() and inbox.received(FILE) == 0


@pytest.mark.parametrize("sha256", ["", "../" * 22, SHA[:-1], SHA.upper()])
def test_only_a_hash_becomes_a_directory(inbox: Inbox, sha256: str) -> None:
    with pytest.raises(StagingError, match="cannot be uploaded under this name"):
        append(inbox, CONTENT, 0, sha256=sha256)
    assert not inbox.path.exists()


@pytest.mark.parametrize("name", ["", "..", "a/b", "a\x1b"])
def test_only_a_plain_name_becomes_a_file(inbox: Inbox, name: str) -> None:
    with pytest.raises(StagingError, match="cannot be uploaded under this name"):
        append(inbox, CONTENT, 0, name=name)


def test_nothing_is_written_through_what_a_job_puts_there(inbox: Inbox, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "train.jsonl").write_bytes(b"")
    inbox.path.parent.mkdir()
    inbox.path.symlink_to(victim)
    with pytest.raises(OSError):
        append(inbox, CONTENT, 0)
    inbox.path.unlink()
    inbox.path.mkdir()
    (inbox.path / SHA).symlink_to(victim)
    with pytest.raises(OSError):
        append(inbox, CONTENT, 0)
    (inbox.path / SHA).unlink()
    (inbox.path / SHA).mkdir()
    for put in (Path.symlink_to, Path.hardlink_to):
        put(inbox.place(FILE), victim / "train.jsonl")
        with pytest.raises((OSError, StagingError)):
            append(inbox, CONTENT, 0)
        inbox.place(FILE).unlink()
    os.mkfifo(inbox.place(FILE))
    with pytest.raises((OSError, StagingError)):
        append(inbox, CONTENT, 0)
    assert (victim / "train.jsonl").read_bytes() == b""
    assert [path.name for path in victim.iterdir()] == ["train.jsonl"]


def upload(*files: UploadFile, inbox: Inbox | None = None, missing: Sequence[str] = (), **splits: Any) -> Upload:
    return Upload("ann", {"train": [*files], **splits}, {"train": missing} if missing else {}, inbox)


def manifest(*files: UploadFile) -> Manifest:
    return Manifest({"kind": "rl_dataset", "identity": dict(upload(*files).identity)})


def changed(**values: Any) -> UploadFile:
    return UploadFile(**{**FILE.to_json(), **values})


def test_the_same_content_is_the_same_wherever_it_is() -> None:
    assert upload(changed(path="/builds/7/train.jsonl", mtime_ns=8)).differs(manifest(FILE)) == ""
    # Without its hash, the time decides that nothing has changed, but not that something has.
    assert upload(changed(sha256="")).differs(manifest(FILE)) == ""
    with pytest.raises(UndecidedError):
        upload(changed(sha256="", mtime_ns=8)).differs(manifest(FILE))


@pytest.mark.parametrize(
    "values", [{"sha256": "0" * 64}, {"size": 11}, {"size": 11, "sha256": ""}, {"path": "/a/b.jsonl"}]
)
def test_another_file_is_a_difference(values: dict[str, Any]) -> None:
    assert "train.jsonl" in upload(changed(**values)).differs(manifest(FILE)) or "b.jsonl" in upload(
        changed(**values)
    ).differs(manifest(FILE))


def test_more_or_fewer_files_or_another_order_are_a_difference() -> None:
    other = UploadFile("/home/ann/b.jsonl", 1, 1, "1" * 64)
    assert upload(FILE, other).differs(manifest(FILE, other)) == ""
    assert "was staged without /home/ann/b.jsonl of ann" in upload(FILE, other).differs(manifest(FILE))
    assert "was staged from train.jsonl, b.jsonl as files.train" in upload(FILE).differs(manifest(FILE, other))
    assert "was staged from train.jsonl, b.jsonl as" in upload(other, FILE).differs(manifest(FILE, other))
    # This controller does not have one of them.
    assert upload(FILE, missing=["/home/ann/b.jsonl"]).differs(manifest(FILE, other)) == ""
    assert upload(missing=["/home/ann/train.jsonl"]).differs(manifest(FILE)) == ""


def test_a_manifest_that_a_job_has_changed_is_a_difference() -> None:
    for uploaded in ("text", {"train": "text"}, {"train": [7, ["a"], ["b", 1, 2]]}, None):
        broken = Manifest({"kind": "rl_dataset", "identity": {"uploaded_files": uploaded}})
        assert "was staged without /home/ann/train.jsonl" in upload(FILE).differs(broken)


def test_space_counts_what_has_still_to_arrive(inbox: Inbox) -> None:
    assert upload(FILE, inbox=inbox).size() == 20
    append(inbox, b"0123", 0)
    assert upload(FILE, inbox=inbox).size() == 16
    assert upload(changed(sha256=""), inbox=inbox).size() == 20


def test_a_missing_file_names_the_controller() -> None:
    with pytest.raises(StagingError, match=r"files\.train: the controller ann has no file /home/ann/x\.jsonl"):
        upload(FILE, missing=["/home/ann/x.jsonl"]).size()


@pytest.mark.parametrize(
    ("missing", "expected"),
    [(["/home/ann/x.jsonl"], r"files\.train: the controller ann has no file"), ([], r"val: has no rows")],
)
def test_a_missing_file_is_named_before_rows_that_it_may_have(
    missing: list[str], expected: str, tmp_path: Path
) -> None:
    given = upload(FILE, missing=missing).to_json()
    with pytest.raises(StagingError, match=expected):
        source_of(DatasetOptions.of({"name": "sums", "workload": "rl", "upload": given}), tmp_path)


def test_only_what_has_arrived_with_its_content_is_read(inbox: Inbox, tmp_path: Path) -> None:
    source = upload(FILE, inbox=inbox)
    assert not source.quick
    for part, offset in ((b"01234", 0), (b"5678x", 5)):
        with pytest.raises(StagingError, match="was not uploaded completely"):
            source.fetch(tmp_path, Progress(), None)
        append(inbox, part, offset)
    assert source.quick
    with pytest.raises(StagingError, match=r"/home/ann/train\.jsonl: changed while it was copied"):
        source.fetch(tmp_path, Progress(), None)
    # It is uploaded again.
    assert inbox.received(FILE) == 0
    append(inbox, CONTENT, 0)
    assert source.fetch(tmp_path, Progress(), None).files == {"train": [inbox.place(FILE)]}


def test_it_travels_as_json(inbox: Inbox) -> None:
    source = upload(FILE, missing=["/x"])
    assert Upload.of(source.to_json()) == source
    assert Upload.of({"controller": "ann", "files": {"train": [FILE.to_json()], "val": []}, "missing": None}) == upload(
        FILE
    )
    assert upload(FILE).identity == {"uploaded_files": {"train": [["train.jsonl", 10, 7, SHA]]}}


def test_a_path_that_a_node_does_not_have_is_reported_with_both_paths_of_the_shared_root() -> None:
    what, todo = no_match("/srv/verl/raw/a.jsonl", "mvp-ray-head", "/private", "/srv/verl")
    assert what == (
        "no file matches /srv/verl/raw/a.jsonl on mvp-ray-head, where the shared root is /private (/srv/verl on its "
        "machine)."
    )
    assert todo == "Give /private/raw/a.jsonl: nodes see the shared root there."
    what, todo = no_match("/home/ann/a.jsonl", "head", "/private", "/private")
    assert what == "no file matches /home/ann/a.jsonl on head, where the shared root is /private."
    assert "from: controller" in todo
