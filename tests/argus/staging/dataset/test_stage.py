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
    refused,
)

from argus.staging.manifest import Status


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "source: is not set. Set one of files, hub (with files), script (with code_path) and tiny"),
        ({"tiny": True, "script": "a.py"}, "source: script and tiny are set"),
        ({"hub": "a/b"}, "files.train: is not set"),
        ({"script": "gsm8k.py"}, "code_path: is not set"),
        ({"script": "../gsm8k.py", "code_path": "a"}, 'script: "../gsm8k.py" is not the name of a Python file'),
        ({"script": "a.py", "code_path": "a", "arguments": ["--local_dir=x"]}, "has --local_dir, which is always set"),
        ({"tiny": True, "columns": {"prompt": "a"}}, "columns: has no effect with tiny"),
        ({"tiny": True, "arguments": ["a"]}, "arguments: has no effect with tiny"),
        ({"files": {"train": ["a.jsonl"]}, "val_rows": 1}, 'files.train: "a.jsonl" is not an absolute path'),
        (
            {"files": {"train": ["/nothing/*.jsonl"]}, "val_rows": 1},
            "files.train: no file matches /nothing/*.jsonl on ",
        ),
        ({"name": "Upper", "tiny": True}, 'name: the name "Upper" is not allowed'),
        ({"tiny": True, "from": "node"}, "from: has an effect only with files"),
        ({"hub": "a/b", "files": {"train": ["a"]}, "from": "node"}, "from: has an effect only with files"),
        (
            {"files": {"train": ["../a.jsonl"]}, "val_rows": 1, "from": "shared_root"},
            'files.train: "../a.jsonl" is not below the shared root',
        ),
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_wrong_sources_are_rejected_in_check_mode_too(
    root: Path, options: dict[str, Any], said: str, check: bool
) -> None:
    assert said in refused(root, **options, check=check)


def test_check_mode_builds_nothing(raw: Path, root: Path) -> None:
    assert mapped(raw, root, check=True).status == Status.STAGED
    assert list(root.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("data_source", "other", "was staged with data_source openai/gsm8k, but the request has data_source other"),
        ("instruction", "Think.", "was staged with no instruction, but the request has instruction Think."),
        (
            "ground_truth_pattern",
            None,
            r"was staged with ground_truth_pattern #### (\S+), but the request has no ground_truth_pattern",
        ),
        ("columns", {**COLUMNS, "ability": "answer"}, "was staged with columns {'prompt': "),
    ],
)
def test_another_option_is_another_dataset(raw: Path, root: Path, option: str, value: Any, said: str) -> None:
    train, val = lines(raw / "a.jsonl", QUESTIONS[:15]), lines(raw / "b.jsonl", QUESTIONS[15:])
    options = {"files": {"train": [train], "val": [val]}, **MAPPED}
    asked(root, **options)
    message = refused(root, **{**options, option: value})
    assert said in message
    assert message.endswith("Staged content never changes: choose another name, or remove it first (state: absent).")


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
