"""Where rows come from: files, generated rows, repositories of the hub, and the controller."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hub import Hub
from staging_datasets import QUESTIONS, hubs, jsonl, lines, mapped, put, read, refused, removed, rl_row, stage
from staging_store import manifest_json

from argus.staging.dataset.row_source import UploadedRows
from argus.staging.dataset.sources import FileRows, row_source_of
from argus.staging.items import Dataset
from argus.staging.manifest import Manifest, Status
from argus.staging.options import StageOptions, StagingError
from argus.staging.upload import UploadFile


def test_files_are_compared_as_long_as_they_exist(raw: Path, root: Path) -> None:
    one, two = lines(raw / "1.jsonl", [rl_row(1)]), lines(raw / "2.jsonl", [rl_row(2)])
    pattern = {"files": {"train": [f"{raw}/*.jsonl"]}, "val_rows": 1}
    stage(root, **pattern)
    assert stage(root, files={"train": [one, two]}, val_rows=1).status == Status.EXISTS
    assert f"was also staged from {two}, which files.train does not have now" in refused(
        root, files={"train": [one]}, val_rows=1
    )
    assert "in another order" in refused(root, files={"train": [two, one]}, val_rows=1)
    assert "was staged with val_rows 1, but the request has val_rows 2" in refused(root, **{**pattern, "val_rows": 2})
    three = lines(raw / "3.jsonl", [rl_row(3)])
    assert FileRows.of({"train": [one, two], "val": [three]}).label == f"{one}, {two} and 1 more"
    assert FileRows.of({"train": [one], "val": [three]}).label == f"{one}, {three}"
    assert f"was staged without {three}, which files.train has now" in refused(root, **pattern)
    Path(three).unlink()
    time = Path(one).stat().st_mtime_ns
    os.utime(one, ns=(time, time + 1))
    assert f"was staged from {one}, which has changed since (another time)" in refused(root, **pattern)
    lines(Path(one), [rl_row(1), rl_row(4)])
    assert f"was staged from {one}, which has changed since (" in refused(root, **pattern)
    Path(one).unlink()
    assert stage(root, **pattern).status == Status.EXISTS
    Path(two).unlink()
    assert stage(root, **pattern).status == Status.EXISTS
    assert f"was staged from {raw}/*.jsonl, but the request has tiny" in refused(root, tiny=True)


def test_files_of_the_shared_root_have_the_path_of_the_nodes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines(root / "jobs/rows/output/a.jsonl", [rl_row(1), rl_row(2)])
    patterns = {"train": ["jobs/rows/output/*.jsonl"]}
    assert stage(root, files=patterns, val_rows=1, **{"from": "shared_root"}).status == Status.STAGED
    assert stage(root, files={"train": [f"{root}/jobs/rows/output/a.jsonl"]}, val_rows=1).status == Status.EXISTS
    monkeypatch.setenv("ARGUS_VERL_SHARED_ROOT", "/srv/verl")
    said = refused(root, files={"train": "/srv/verl/raw/a.jsonl"}, val_rows=1, **{"from": "shared_root"})
    assert f"is {root} in nodes, and /srv/verl on the head's machine" in said


def test_a_repository_is_fetched_once_and_pinned(root: Path, hub: Hub) -> None:
    commit = put(hub)
    assert stage(root, **hubs(hub), check=True).status == Status.STAGED
    assert not hub.gets()
    assert stage(root, **hubs(hub)).status == Status.STAGED
    assert [row["reward_model"]["ground_truth"] for row in read(root)] == [str(number) for number in range(1, 16)]
    assert {request.name for request in hub.gets()} == {"train-0.jsonl", "train-1.jsonl", "test.jsonl"}
    text = (root / "datasets/data/manifest.json").read_text()
    origin = {"source": "team/sums", "revision": "main", "commit": commit, "endpoint": hub.url}
    assert hub.token not in text and origin.items() <= json.loads(text).items()
    # It causes no request any more.
    put(hub, main__test=QUESTIONS[16:])
    count = len(hub.requests)
    assert stage(root, **hubs(hub)).status == stage(root, **hubs(hub), revision=commit).status == Status.EXISTS
    expected = f"was staged from revision main (commit {commit}), but the request has revision v2"
    assert expected in refused(root, **hubs(hub), revision="v2")
    files = {"train": ["main/train-*.jsonl"], "val": ["main/other.jsonl"]}
    assert "was staged with files {" in refused(root, **hubs(hub, files=files))
    assert "was staged with hub team/sums, but the request has hub team/x" in refused(root, **hubs(hub, hub="team/x"))
    assert len(hub.requests) == count
    # A repair takes its commit.
    file = root / "datasets/data/val.parquet"
    before = file.read_bytes()
    file.unlink()
    shutil.rmtree(root / "hf")
    assert stage(root, **hubs(hub), repair=True).status == Status.REPAIRED
    assert (file.read_bytes(), manifest_json(file.parent)["revision"]) == (before, "main")


def test_a_removed_dataset_is_removed_from_the_cache_unless_another_has_it(raw: Path, root: Path, hub: Hub) -> None:
    old = put(hub)
    stage(root, **hubs(hub))
    stage(root, name="other", **hubs(hub), val_rows=None)
    new = put(hub, main__test=QUESTIONS[16:])
    stage(root, name="newer", **hubs(hub))
    assert removed(root, check=True).status == Status.REMOVED
    job = root / "jobs" / "grpo-1" / "config"
    job.mkdir(parents=True)
    (job / "job_spec.json").write_text(json.dumps({"dataset": "data", "shared_root": str(root)}))
    with pytest.raises(StagingError, match="is used by grpo-1"):
        removed(root)
    shutil.rmtree(job.parent)
    # A directory that was not staged, and files of the node.
    (root / "datasets/by-hand").mkdir()
    mapped(raw, root, name="of-files")
    cached = root / "hf/hub/datasets--team--sums/snapshots"
    for name, left in (("data", {old, new}), ("of-files", {old, new}), ("newer", {old})):
        assert removed(root, name).status == Status.REMOVED
        assert {path.name for path in cached.iterdir()} == left
    assert (cached / old / "main/test.jsonl").read_bytes() == jsonl(QUESTIONS[15:])
    removed(root, "other")
    assert not cached.parent.exists() and removed(root).status == Status.ABSENT


@pytest.mark.parametrize("check", [True, False])
def test_missing_files_are_reported_before_any_download(root: Path, hub: Hub, check: bool) -> None:
    put(hub)
    assert "team/nothing on " in refused(root, **hubs(hub, hub="team/nothing"), check=check)
    assert "Give a branch, a tag, or a commit" in refused(root, **hubs(hub), revision="v2", check=check)
    assert "if it is private, set a token" in refused(root, **hubs(hub, token=None), check=check)
    said = refused(root, **hubs(hub, files={"train": ["main/train-*.jsonl"], "val": ["val/*"]}), check=check)
    assert "has no file val/* (files.val); it has: README.md, main/extra.py, main/test.jsonl" in said
    assert not hub.gets(".jsonl")


CONTENT = b"0123456789"
SHA = hashlib.sha256(CONTENT).hexdigest()
FILE = UploadFile("/home/ann/train.jsonl", len(CONTENT), 7, SHA)


def upload(*files: UploadFile, missing: Sequence[str] = (), received: Path | None = None) -> UploadedRows:
    return UploadedRows("ann", {"train": [*files]}, {"train": missing} if missing else {}, received)


def manifest(*files: UploadFile) -> Manifest:
    return Manifest({"kind": "rl_dataset", "identity": dict(upload(*files).identity)})


def changed(**values: Any) -> UploadFile:
    return replace(FILE, **values)


@pytest.mark.parametrize(
    "values", [{"sha256": "0" * 64}, {"size": 11}, {"size": 11, "sha256": ""}, {"path": "/a/b.jsonl"}]
)
def test_another_file_is_a_difference(values: dict[str, Any]) -> None:
    assert str(changed(**values).path).rpartition("/")[2] in upload(changed(**values)).mismatch(manifest(FILE))


def test_more_or_fewer_files_or_another_order_are_a_difference() -> None:
    other = UploadFile("/home/ann/b.jsonl", 1, 1, "1" * 64)
    assert upload(FILE, other).mismatch(manifest(FILE, other)) == ""
    assert "was staged without /home/ann/b.jsonl of ann" in upload(FILE, other).mismatch(manifest(FILE))
    for fewer in ([FILE], [other, FILE]):
        assert "was staged from train.jsonl, b.jsonl as files.train" in upload(*fewer).mismatch(manifest(FILE, other))
    # This controller does not have one of them.
    assert upload(FILE, missing=["/home/ann/b.jsonl"]).mismatch(manifest(FILE, other)) == ""
    assert upload(missing=["/home/ann/train.jsonl"]).mismatch(manifest(FILE)) == ""
    # A manifest that a job has changed.
    for uploaded in ("text", {"train": "text"}, {"train": [7, ["a"], ["b", 1, 2]]}, None):
        broken = Manifest({"kind": "rl_dataset", "identity": {"uploaded_files": uploaded}})
        assert "was staged without /home/ann/train.jsonl" in upload(FILE).mismatch(broken)


def test_a_missing_file_is_named_before_rows_that_it_may_have(tmp_path: Path) -> None:
    dataset = Dataset(name="sums", files={"train": ["x"]})
    for missing, expected in ((["/home/ann/x.jsonl"], "the controller ann has no"), ([], "val: has no rows")):
        with pytest.raises(StagingError, match=expected):
            row_source_of(dataset, tmp_path, StageOptions(), upload(FILE, missing=missing))
