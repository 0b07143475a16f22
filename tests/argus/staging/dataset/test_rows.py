"""Files of rows in each format."""

from __future__ import annotations

import csv
import gzip
import json
import os
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet
from staging_datasets import COLUMNS, asked, lines, read, refused, rl_row, table

from argus.staging.dataset import rows as dataset_rows
from argus.staging.lock import Progress


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "json", "list.json", "parquet"])
def test_every_format_gives_the_same_rows(raw: Path, root: Path, ending: str) -> None:
    rows = [rl_row(number) for number in range(5)]
    path = raw / f"train.{ending}"
    if ending == "parquet":
        table(path, rows)
    elif ending == "list.json":
        path.write_text(json.dumps(rows, indent=1))
    else:
        lines(path, rows)
    asked(root, files={"train": [str(path)]}, val_rows=1)
    assert [*read(root, "val"), *read(root)] == rows


def test_csv_is_text_and_may_have_lines_in_its_values(raw: Path, root: Path) -> None:
    for ending in ("csv", "csv.gz"):
        path = raw / f"train.{ending}"
        with gzip.open(path, "wt", newline="") if ending.endswith("gz") else path.open("w", newline="") as file:
            csv.writer(file).writerows([["question", "answer"], ['How "many"?\nSay, please.', "007"], ["b", "1,000"]])
        asked(root, name=ending, files={"train": [str(path)]}, columns=COLUMNS, data_source="x", val_rows=1)
        (val,), (train,) = read(root, "val", ending), read(root, "train", ending)
        assert val["prompt"] == [{"role": "user", "content": 'How "many"?\nSay, please.'}]
        assert [row["reward_model"]["ground_truth"] for row in (val, train)] == ["007", "1,000"]


def test_types_that_differ_from_one_part_of_a_file_to_the_next_are_brought_together(
    raw: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_rows, "BATCH_ROWS", 2)
    rows = [rl_row(number, score=number, tags=[], when=None) for number in range(6)]
    rows[3] |= {"score": 0.5, "tags": ["a"], "when": "2020-01-01"}
    rows[5]["when"] = "never"
    asked(root, files={"train": [lines(raw / "train.jsonl", rows)]}, val_rows=2)
    asked(root, "again", files={"train": [str(raw / "train.jsonl")]}, val_rows=2)
    same = [(root / "datasets" / name / "train.parquet").read_bytes() for name in ("data", "again")]
    assert same[0] == same[1]
    assert [row["score"] for row in [*read(root, "val"), *read(root)]] == [0, 0.5, 1, 2, 4, 5]
    assert [row["when"] for row in read(root)] == [None, None, None, "never"]
    assert read(root, "val")[1]["when"] == "2020-01-01"


@pytest.mark.parametrize("row_groups", [1, 40])
def test_memory_does_not_grow_with_a_file(raw: Path, row_groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it compresses: what is read of a file is as large as what is on disk."""
    monkeypatch.setattr(dataset_rows, "BATCH_BYTES", 1 << 20)
    texts = [os.urandom(2048).hex() for _row in range(8000)]
    made = pyarrow.table({"text": texts})
    parquet.write_table(made, raw / "a.parquet", row_group_size=8000 // row_groups, compression="none")
    del made, texts
    before, most = pyarrow.total_allocated_bytes(), 0
    rows = dataset_rows.Rows([raw / "a.parquet"], Progress())
    for _batch in rows.batches():
        most = max(most, pyarrow.total_allocated_bytes() - before)
    assert (raw / "a.parquet").stat().st_size > 32_000_000
    assert most < 13_000_000


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", b'{"a": 1}\n{"a": \n', "is not readable as jsonl: line 2: Expecting value"),
        ("a.json", b'[{"a": 1}, {"a": "x"}]', "a: row 1 of a.json has text, row 0 of a.json a number"),
        ("a.jsonl", b'{"a": 1180591620717411303424}', "is not readable as jsonl: "),
        ("a.json", b"[1, 2]", "is not readable as json: row 1 is not an object"),
        ("a.jsonl.gz", b"not compressed", "is not readable as jsonl: "),
        ("a.csv", b"a,b\n1,2,3\n", "is not readable as csv: line 2 does not have 2 values"),
        ("a.csv", b"", "is not readable as csv: it is empty"),
        ("a.parquet", b"PAR1", "is not readable as parquet: "),
        (
            "a.parquet",
            b"version https://git-lfs.github.com/spec/v1\noid",
            "is a Git LFS pointer, not the file. Download it",
        ),
        ("a.txt", b"", "has an unknown format. Its name must end with one of .parquet, .jsonl, .json, .csv"),
        ("a.parquet.gz", b"", "has an unknown format"),
    ],
)
def test_files_that_cannot_be_read_are_named(raw: Path, root: Path, name: str, content: bytes, said: str) -> None:
    (raw / name).write_bytes(content)
    message = refused(root, files={"train": [str(raw / name)]}, val_rows=1)
    assert message.startswith(f"{raw / name}: ")
    assert said in message


def test_types_that_differ_between_files_are_named(raw: Path, root: Path) -> None:
    one, two = lines(raw / "1.jsonl", [rl_row(1, level=1)]), lines(raw / "2.jsonl", [rl_row(2, level="hard")])
    said = refused(root, files={"train": [one, two]}, val_rows=1)
    assert said.startswith(f"{two}: ") and "level: row 0 of 2.jsonl has text, row 0 of 1.jsonl a number" in said
    one, two = table(raw / "1.parquet", [rl_row(1, level=1)]), table(raw / "2.parquet", [rl_row(2, level="hard")])
    assert "level: 2.parquet has text, 1.parquet a number" in refused(root, files={"train": [one, two]}, val_rows=1)
