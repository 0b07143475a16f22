"""Files of the controller: when they are the same, and what they are called."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from argus.staging.dataset.source import Upload
from argus.staging.dataset.sources import source_of
from argus.staging.items import Dataset
from argus.staging.lock import Progress
from argus.staging.manifest import Manifest
from argus.staging.options import StageOptions, StagingError
from argus.staging.upload import FilesNeededError, UploadFile

CONTENT = b"0123456789"
SHA = hashlib.sha256(CONTENT).hexdigest()
FILE = UploadFile("/home/ann/train.jsonl", len(CONTENT), 7, SHA)


def upload(*files: UploadFile, missing: Sequence[str] = (), received: Path | None = None) -> Upload:
    return Upload("ann", {"train": [*files]}, {"train": missing} if missing else {}, received)


def manifest(*files: UploadFile) -> Manifest:
    return Manifest({"kind": "rl_dataset", "identity": dict(upload(*files).identity)})


def changed(**values: Any) -> UploadFile:
    return replace(FILE, **values)


def test_the_same_content_is_the_same_wherever_it_is() -> None:
    assert upload(changed(path="/builds/7/train.jsonl", mtime_ns=8)).differs(manifest(FILE)) == ""
    # Without its hash, the time decides that nothing has changed, but not that something has.
    assert upload(changed(sha256="")).differs(manifest(FILE)) == ""
    with pytest.raises(FilesNeededError):
        upload(changed(sha256="", mtime_ns=8)).differs(manifest(FILE))


@pytest.mark.parametrize(
    "values", [{"sha256": "0" * 64}, {"size": 11}, {"size": 11, "sha256": ""}, {"path": "/a/b.jsonl"}]
)
def test_another_file_is_a_difference(values: dict[str, Any]) -> None:
    assert str(changed(**values).path).rpartition("/")[2] in upload(changed(**values)).differs(manifest(FILE))


def test_more_or_fewer_files_or_another_order_are_a_difference() -> None:
    other = UploadFile("/home/ann/b.jsonl", 1, 1, "1" * 64)
    assert upload(FILE, other).differs(manifest(FILE, other)) == ""
    assert "was staged without /home/ann/b.jsonl of ann" in upload(FILE, other).differs(manifest(FILE))
    for fewer in ([FILE], [other, FILE]):
        assert "was staged from train.jsonl, b.jsonl as files.train" in upload(*fewer).differs(manifest(FILE, other))
    # This controller does not have one of them.
    assert upload(FILE, missing=["/home/ann/b.jsonl"]).differs(manifest(FILE, other)) == ""
    assert upload(missing=["/home/ann/train.jsonl"]).differs(manifest(FILE)) == ""
    # A manifest that a job has changed.
    for uploaded in ("text", {"train": "text"}, {"train": [7, ["a"], ["b", 1, 2]]}, None):
        broken = Manifest({"kind": "rl_dataset", "identity": {"uploaded_files": uploaded}})
        assert "was staged without /home/ann/train.jsonl" in upload(FILE).differs(broken)


def test_a_missing_file_is_named_before_rows_that_it_may_have(tmp_path: Path) -> None:
    for missing, expected in (
        (["/home/ann/x.jsonl"], r"files\.train: the controller ann has no"),
        ([], "val: has no rows"),
    ):
        with pytest.raises(StagingError, match=expected):
            dataset = Dataset(name="sums", files={"train": ["x"]})
            source_of(dataset, tmp_path, StageOptions(), upload(FILE, missing=missing))


def test_files_are_needed_only_to_build(tmp_path: Path) -> None:
    with pytest.raises(FilesNeededError):
        upload(FILE).fetch(tmp_path, Progress(), None)
    both = Upload("ann", {"train": [FILE], "val": [FILE]}, received=tmp_path)
    assert both.members == {"0/train.jsonl": FILE}
    arrived = [tmp_path / "0" / "train.jsonl"]
    assert both.fetch(tmp_path, Progress(), None).files == {"train": arrived, "val": arrived}
