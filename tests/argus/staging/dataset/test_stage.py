"""Staging datasets, and measuring existing ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from staging_datasets import (
    COLUMNS,
    LENGTHS,
    MAPPED,
    QUESTIONS,
    Letters,
    asked,
    lines,
    manifest,
    mapped,
    put_model,
    refused,
    removed,
    rl_row,
)
from staging_tools import manifest_json

from argus.checks.rows import SFT
from argus.staging.dataset import rows as dataset_rows
from argus.staging.dataset import stage as datasets
from argus.staging.dataset.builder import DatasetBuilder
from argus.staging.errors import StagingError
from argus.staging.result import Staged, Status


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


def test_an_existing_dataset_is_not_built_again(raw: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert mapped(raw, root).status == Status.STAGED
    monkeypatch.setattr(DatasetBuilder, "run", None)
    assert mapped(raw, root).status == Status.EXISTS
    assert mapped(raw, root, check=True, full=True).status == Status.EXISTS


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


def test_a_dataset_of_any_workload_is_removed(root: Path) -> None:
    asked(root, workload=SFT, tiny=True)
    assert removed(root) == Staged("sft_dataset", "data", str(root / "datasets/data"), Status.REMOVED)


def test_prompts_are_measured_with_the_tokenizer_of_a_model(raw: Path, root: Path, model: Path) -> None:
    file = lines(raw / "all.jsonl", QUESTIONS)
    said = refused(root, files={"train": [file]}, val_rows=1, model="Tiny", max_prompt_length=14, **MAPPED)
    assert said.startswith("model: ") and "Tiny has no tokenizer" in said
    put_model(model)
    assert mapped(raw, root, model="Tiny", max_prompt_length=14).status == Status.STAGED
    assert manifest(root)["report"] == LENGTHS
    assert Letters.loaded == [model]
    assert mapped(raw, root, model="Tiny", max_prompt_length=14).status == Status.EXISTS
    assert mapped(raw, root).status == Status.EXISTS
    assert Letters.loaded == [model]


def test_prompts_of_an_existing_dataset_are_measured_on_request(raw: Path, root: Path, model: Path) -> None:
    mapped(raw, root)
    before, made = {path.name: path.stat() for path in (root / "datasets/data").iterdir()}, manifest(root)
    measure = {"model": "Tiny", "max_prompt_length": 14}
    with pytest.raises(StagingError, match="Tiny has no tokenizer"):
        mapped(raw, root, **measure)
    put_model(model)
    assert mapped(raw, root, **measure, check=True).notes == ()
    assert Letters.loaded == [] and manifest(root) == made
    measured = mapped(raw, root, **measure)
    assert (measured.status, measured.changed, list(measured.notes)) == (Status.EXISTS, False, LENGTHS)
    assert manifest(root) == {**made, "report": LENGTHS, "measured": measure}
    assert list(manifest(root))[-1] == "files"
    after = {path.name: path.stat() for path in (root / "datasets/data").iterdir()}
    assert {name for name in before if after.pop(name) != before[name]} == {"manifest.json"} and not after
    assert [path.name for path in (root / "datasets").iterdir()] == ["data"]
    # Not again until the request changes.
    for how in ({}, {"full": True}):
        assert mapped(raw, root, **measure, **how) == Staged(
            "rl_dataset", "data", str(root / "datasets/data"), Status.EXISTS
        )
    assert mapped(raw, root).notes == ()
    assert Letters.loaded == [model]
    assert mapped(raw, root, model="Tiny", max_prompt_length=20).notes == ()
    assert (manifest(root)["report"], manifest(root)["measured"]["max_prompt_length"]) == ([], 20)
    assert Letters.loaded == [model] * 2


def test_rows_are_named_as_they_were_when_they_were_read(
    raw: Path, root: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_model(model)
    monkeypatch.setattr(dataset_rows, "BATCH_ROWS", 4)
    options = {"files": {"train": [lines(raw / "a.jsonl", [*QUESTIONS, QUESTIONS[5]])]}, "val_rows": 4, **MAPPED}
    measure = {"model": "Tiny", "max_prompt_length": 14}
    asked(root, name="at-once", **options, **measure)
    asked(root, **options)
    warnings = manifest(root)["report"]
    asked(root, **options, **measure)
    at_once = manifest_json(root / "datasets/at-once")["report"]
    assert len(warnings) == 1 and len(at_once) == 3
    assert sorted(manifest(root)["report"]) == sorted(at_once)


def test_errors_in_rows_of_an_existing_dataset_are_reported_as_for_new_ones(
    raw: Path, root: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if they had been staged before this error was known."""
    put_model(model)
    files = {"train": [lines(raw / "a.jsonl", [rl_row(1), rl_row(2, data_source="")])]}
    with monkeypatch.context() as patched:
        patched.setattr(datasets.Checker, "errors", lambda checker: [])
        asked(root, files=files, val_rows=1)
    made = manifest(root)
    said = refused(root, files=files, val_rows=1, model="Tiny", max_prompt_length=99)
    assert said == refused(root, name="new", files=files, val_rows=1).replace("datasets/new", "datasets/data")
    assert "train: has an empty data_source" in said
    assert manifest(root) == made


def test_a_repaired_dataset_is_measured_too(raw: Path, root: Path, model: Path) -> None:
    put_model(model)
    mapped(raw, root)
    (root / "datasets/data/val.parquet").unlink()
    repaired = mapped(raw, root, model="Tiny", max_prompt_length=14, repair=True)
    assert (repaired.status, list(repaired.notes)) == (Status.REPAIRED, ["val.parquet is missing", *LENGTHS])
    assert manifest(root)["report"] == LENGTHS
