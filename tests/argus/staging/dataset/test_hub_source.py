"""Rows from dataset repositories of the hub."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from hub import Hub
from staging_datasets import QUESTIONS, asked, hubs, jsonl, mapped, put, read, refused, removed
from staging_tools import manifest_json

from argus.staging.manifest import Status
from argus.staging.options import StagingError


def test_a_repository_is_fetched_once_and_pinned(root: Path, hub: Hub) -> None:
    commit = put(hub)
    assert asked(root, **hubs(hub), check=True).status == Status.STAGED
    assert not hub.gets()
    assert asked(root, **hubs(hub)).status == Status.STAGED
    assert [row["reward_model"]["ground_truth"] for row in read(root)] == [str(number) for number in range(1, 16)]
    assert {each.name for each in hub.gets()} == {"train-0.jsonl", "train-1.jsonl", "test.jsonl"}
    text = (root / "datasets/data/manifest.json").read_text()
    wanted = {"source": "team/sums", "revision": "main", "commit": commit, "endpoint": hub.url}
    assert hub.token not in text and wanted.items() <= json.loads(text).items()
    # It causes no request any more.
    put(hub, main__test=QUESTIONS[16:])
    count = len(hub.asked)
    assert asked(root, **hubs(hub)).status == asked(root, **hubs(hub), revision=commit).status == Status.EXISTS
    expected = f"was staged from revision main (commit {commit}), but the request has revision v2"
    assert expected in refused(root, **hubs(hub), revision="v2")
    files = {"train": ["main/train-*.jsonl"], "val": ["main/other.jsonl"]}
    assert "was staged with files {" in refused(root, **hubs(hub, files=files))
    assert "was staged with hub team/sums, but the request has hub team/x" in refused(root, **hubs(hub, hub="team/x"))
    assert len(hub.asked) == count
    # A repair takes its commit.
    file = root / "datasets/data/val.parquet"
    before = file.read_bytes()
    file.unlink()
    shutil.rmtree(root / "hf")
    assert asked(root, **hubs(hub), repair=True).status == Status.REPAIRED
    assert (file.read_bytes(), manifest_json(file.parent)["revision"]) == (before, "main")


def test_a_removed_dataset_is_removed_from_the_cache_unless_another_has_it(raw: Path, root: Path, hub: Hub) -> None:
    old = put(hub)
    asked(root, **hubs(hub))
    asked(root, name="other", **hubs(hub), val_rows=None)
    new = put(hub, main__test=QUESTIONS[16:])
    asked(root, name="newer", **hubs(hub))
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
    assert said.startswith(
        "team/sums: has no file val/* (files.val); it has: README.md, main/extra.py, main/test.jsonl"
    )
    assert not hub.gets(".jsonl")
