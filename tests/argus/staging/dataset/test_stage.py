"""Staging datasets, and measuring existing ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from staging_datasets import (
    COLUMNS,
    MAPPED,
    QUESTIONS,
    asked,
    lines,
    mapped,
    read,
    refused,
    rl_row,
    table,
)
from staging_tools import manifest_json

from argus.staging.dataset.stage import DatasetBuilder
from argus.staging.manifest import Status
from argus.staging.options import StagingError


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "source: is not set. Set one of files, hub (with files) and tiny"),
        ({"tiny": True, "hub": "a/b"}, "source: hub and tiny are set"),
        ({"hub": "a/b"}, "files.train: is not set"),
        ({"tiny": True, "columns": {"prompt": "a"}}, "columns: has no effect with tiny"),
        ({"tiny": True, "val_rows": 1}, "val_rows: is set, but val already has rows"),
        ({"files": {"train": ["a.jsonl"]}, "val_rows": 1}, 'files.train: "a.jsonl" is not an absolute path'),
        (
            {"files": {"train": ["/nothing/*.jsonl"]}, "val_rows": 1},
            "files.train: no file matches /nothing/*.jsonl on ",
        ),
        ({"name": "Upper", "tiny": True}, 'name: the name "Upper" is not allowed'),
        ({"hub": "a/b", "files": {"train": ["a"]}, "from": "node"}, "from: has an effect only with files"),
        (
            {"files": {"train": ["../a.jsonl"]}, "val_rows": 1, "from": "shared_root"},
            'files.train: "../a.jsonl" is not below the shared root',
        ),
    ],
)
def test_wrong_sources_are_rejected_in_check_mode_too(root: Path, options: dict[str, Any], said: str) -> None:
    for check in (True, False):
        assert said in refused(root, **options, check=check)


def test_another_option_is_another_dataset(raw: Path, root: Path) -> None:
    assert mapped(raw, root, check=True).status == Status.STAGED
    assert list(root.iterdir()) == []
    mapped(raw, root)
    options = {"data_source": "other", "instruction": "Think.", "ground_truth_pattern": None}
    for option, value in {**options, "columns": {**COLUMNS, "ability": "answer"}}.items():
        with pytest.raises(StagingError, match=option):
            mapped(raw, root, **{option: value})


def test_it_is_repaired_from_its_source(raw: Path, root: Path) -> None:
    mapped(raw, root)
    file = root / "datasets/data/train.parquet"
    before = file.read_bytes()
    file.write_bytes(b"broken")
    files = {"train": [str(raw / "train.jsonl")], "val": [str(raw / "val.jsonl")]}
    assert "no longer fits its manifest: train.parquet has 6 bytes" in refused(root, files=files, **MAPPED)
    assert asked(root, files=files, repair=True, **MAPPED).status == Status.REPAIRED
    assert file.read_bytes() == before
    for path in (raw / "train.jsonl", raw / "val.jsonl"):
        path.unlink()
    file.write_bytes(b"broken")
    assert "files.train: no file matches" in refused(root, files=files, repair=True, **MAPPED)


def test_rows_in_verls_schema_are_not_converted(raw: Path, root: Path) -> None:
    train, val = [rl_row(number) for number in range(10)], [rl_row(number) for number in range(10, 13)]
    files = {"train": [table(raw / "a.parquet", train)], "val": [table(raw / "b.parquet", val)]}
    assert asked(root, files=files).status == Status.STAGED
    assert (read(root), read(root, "val")) == (train, val)
    target = root / "datasets" / "data"
    manifest = manifest_json(target)
    assert sorted(path.name for path in target.iterdir()) == ["manifest.json", "train.parquet", "val.parquet"]
    assert (manifest["kind"], manifest["name"], manifest["report"]) == ("rl_dataset", "data", [])
    assert manifest["source"] == f"{files['train'][0]}, {files['val'][0]}"
    assert [path.name for path in (root / "datasets").iterdir()] == ["data"]


def test_rows_for_validation_are_spread_over_all_and_counted_anew(raw: Path, root: Path) -> None:
    rows = [*QUESTIONS, QUESTIONS[5], QUESTIONS[1], QUESTIONS[1]]
    asked(root, files={"train": [lines(raw / "a.jsonl", rows)]}, val_rows=4, **MAPPED)
    assert [row["reward_model"]["ground_truth"] for row in read(root, "val")] == ["1", "6", "12", "18"]
    assert [row["extra_info"] for row in read(root, "val")] == [{"split": "val", "index": index} for index in range(4)]
    assert [row["extra_info"]["index"] for row in read(root)] == list(range(19))
    found = manifest_json(root / "datasets/data")
    assert found["rows"] == {"train": 19, "val": 4}
    # Findings name rows as they were before some were taken out.
    assert found["report"] == [
        "train: has the same prompt as an earlier row: 2 rows, counted from 0: 21 (as 1), 22 (as 1)",
        "val: has a prompt that is also in train, so validation repeats training data: 1 row, counted from 0: 5",
    ]


def test_validation_needs_some_rows_and_not_all(raw: Path, root: Path) -> None:
    file = lines(raw / "a.jsonl", QUESTIONS)
    for wanted in (0, 20, 21, -1):
        assert f"val_rows: is {wanted}, of 20 rows" in refused(root, files={"train": [file]}, val_rows=wanted, **MAPPED)
    assert "val: has no rows. Set files.val, or set val_rows" in refused(root, files={"train": ["/a.jsonl"]})
    files = {"train": [file], "val": [lines(raw / "b.jsonl", [])]}
    assert f"{raw}/b.jsonl: there are no rows" in refused(root, files=files, **MAPPED)


def test_all_errors_are_reported_together_and_nothing_is_staged(raw: Path, root: Path) -> None:
    train, val = [rl_row(number) for number in range(3)], [rl_row(number) for number in range(3, 5)]
    train[1]["prompt"], val[0]["data_source"] = [{"role": "user", "content": ""}], ""
    files = {"train": [lines(raw / "a.jsonl", train)], "val": [lines(raw / "b.jsonl", val)]}
    said = refused(root, files=files)
    assert "\n- train: has an empty user" in said and "\n- val: has an empty data_source" in said
    assert list((root / "datasets").iterdir()) == []


def test_files_that_change_while_they_are_read_are_an_error(
    raw: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Path(lines(raw / "a.jsonl", [rl_row(number) for number in range(3)]))
    run = DatasetBuilder.run

    def slow_run(builder: DatasetBuilder, *arguments: Any) -> dict[str, int]:
        with file.open("a") as more:
            more.write("\n")
        return run(builder, *arguments)

    monkeypatch.setattr(DatasetBuilder, "run", slow_run)
    assert f"{file}: changed while it was read" in refused(root, files={"train": [str(file)]}, val_rows=1)
