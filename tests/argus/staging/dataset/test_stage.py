"""Staging datasets, and what is wrong with their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from staging_datasets import COLUMNS, MAPPED, QUESTIONS, lines, mapped, read, refused, rl_row, sft_row, stage, table
from staging_store import manifest_json

from argus.checks.dataset import RL, ROLES, SFT
from argus.staging.dataset.checks import MAX_LISTED_ROWS, RowChecker, schema_problem
from argus.staging.dataset.stage import DatasetBuilder
from argus.staging.manifest import Status
from argus.staging.options import StagingError


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "source: is not set. Set one of files, hub (with files) and tiny"),
        ({"tiny": True, "hub": "a/b"}, "source: hub and tiny are set"),
        ({"hub": "a/b"}, "files.train: is not set"),
        ({"tiny": True, "columns": {"prompt": "a"}}, "columns: has no effect with tiny"),
        ({"tiny": True, "val_rows": 1}, "val_rows: is set, but val already has rows"),
        ({"files": {"train": ["a.jsonl"]}, "val_rows": 1}, 'files.train: "a.jsonl" is not an absolute path'),
        ({"files": {"train": ["/nothing/*.jsonl"]}, "val_rows": 1}, "files.train: no file matches /nothing/*.jsonl"),
        ({"name": "Upper", "tiny": True}, 'name: the name "Upper" is not allowed'),
        ({"hub": "a/b", "files": {"train": ["a"]}, "from": "node"}, "from: has an effect only with files"),
        ({"files": {"train": ["../a.jsonl"]}, "val_rows": 1, "from": "shared_root"}, "is not below the shared root"),
    ],
)
def test_wrong_sources_are_rejected_in_check_mode_too(root: Path, options: dict[str, Any], message: str) -> None:
    for check in (True, False):
        assert message in refused(root, **options, check=check)


def test_another_option_is_another_dataset(raw: Path, root: Path) -> None:
    assert mapped(raw, root, check=True).status == Status.STAGED
    assert list(root.iterdir()) == []
    mapped(raw, root)
    options = {"data_source": "other", "instruction": "Think.", "ground_truth_pattern": None}
    for option, value in {**options, "columns": {**COLUMNS, "ability": "answer"}}.items():
        with pytest.raises(StagingError, match=option):
            mapped(raw, root, **{option: value})


def test_rows_in_verls_schema_are_not_converted(raw: Path, root: Path) -> None:
    train, val = [rl_row(number) for number in range(10)], [rl_row(number) for number in range(10, 13)]
    files = {"train": [table(raw / "a.parquet", train)], "val": [table(raw / "b.parquet", val)]}
    assert stage(root, files=files).status == Status.STAGED
    assert (read(root), read(root, "val")) == (train, val)
    expected = {"kind": "rl_dataset", "name": "data", "report": [], "source": f"{raw}/a.parquet, {raw}/b.parquet"}
    assert expected.items() <= manifest_json(root / "datasets/data").items()


def test_rows_for_validation_are_spread_over_all_and_counted_anew(raw: Path, root: Path) -> None:
    rows = [*QUESTIONS, QUESTIONS[5], QUESTIONS[1], QUESTIONS[1]]
    stage(root, files={"train": [lines(raw / "a.jsonl", rows)]}, val_rows=4, **MAPPED)
    assert [row["reward_model"]["ground_truth"] for row in read(root, "val")] == ["1", "6", "12", "18"]
    assert [row["extra_info"] for row in read(root, "val")] == [{"split": "val", "index": index} for index in range(4)]
    assert [row["extra_info"]["index"] for row in read(root)] == list(range(19))
    manifest = manifest_json(root / "datasets/data")
    assert manifest["rows"] == {"train": 19, "val": 4}
    # Findings name rows as they were before some were taken out.
    assert manifest["report"] == [
        "train: has the same prompt as an earlier row: 2 rows, counted from 0: 21 (as 1), 22 (as 1)",
        "val: has a prompt that is also in train, so validation repeats training data: 1 row, counted from 0: 5",
    ]


def test_validation_needs_some_rows_and_not_all(raw: Path, root: Path) -> None:
    file = lines(raw / "a.jsonl", QUESTIONS)
    for count in (0, 20, 21, -1):
        assert f"val_rows: is {count}, of 20 rows" in refused(root, files={"train": [file]}, val_rows=count, **MAPPED)
    assert "val: has no rows. Set files.val, or set val_rows" in refused(root, files={"train": ["/a.jsonl"]})
    files = {"train": [file], "val": [lines(raw / "b.jsonl", [])]}
    assert f"{raw}/b.jsonl: there are no rows" in refused(root, files=files, **MAPPED)


def test_all_errors_are_reported_together_and_nothing_is_staged(raw: Path, root: Path) -> None:
    train, val = [rl_row(number) for number in range(3)], [rl_row(number) for number in range(3, 5)]
    train[1]["prompt"], val[0]["data_source"] = [{"role": "user", "content": ""}], ""
    files = {"train": [lines(raw / "a.jsonl", train)], "val": [lines(raw / "b.jsonl", val)]}
    message = refused(root, files=files)
    assert "\n- train: has an empty user" in message and "\n- val: has an empty data_source" in message
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


def message(role: str, content: Any) -> dict[str, Any]:
    return {"role": role, "content": content}


def checked(workload: str, batch: int = 100, **splits: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """The errors and the warnings."""
    checker = RowChecker(workload)
    for split, rows in splits.items():
        table = pyarrow.RecordBatch.from_struct_array(pyarrow.array(rows))
        assert schema_problem(table.schema, workload) is None
        for start in range(0, len(rows), batch):
            part = table.slice(start, batch)
            checker.check(split, part, range(start, start + part.num_rows))
    checker.compare_splits()
    return checker.errors(), checker.warnings()


@pytest.mark.parametrize(
    ("workload", "second", "error", "warning"),
    [
        (RL, {"prompt": [message("user", " \n")]}, ": 1 row, counted from 0: 1 (user)", ""),
        (SFT, {"messages": [message("user", "a"), message("assistant", "2"), message("tool", "2")]}, "", ": 1 (tool)"),
        (RL, {"prompt": [message("user", "a"), message("assistant", "b")]}, "ends with an assistant message", ""),
        (RL, {"reward_model": None}, "has no reward_model.ground_truth: 1 row, counted from 0: 1 (None)", ""),
        (RL, {"reward_model": {"style": None, "ground_truth": ""}}, "has no reward_model.ground_truth", ""),
        (RL, {"reward_model": {"style": "model", "ground_truth": None}}, "", ""),
        # verl's reward for gsm8k finds numbers without commas only.
        (RL, {"reward_model": {"style": None, "ground_truth": "1,000"}}, "", ": 1 (1,000)"),
        (RL, {"reward_model": {"style": None, "ground_truth": "1,000"}, "data_source": "x"}, "", ""),
        (RL, {"reward_model": {"style": None, "ground_truth": "-3.5"}}, "", ""),
    ],
)
def test_what_is_wrong_with_a_row(workload: str, second: Mapping[str, Any], error: str, warning: str) -> None:
    row = rl_row if workload == RL else sft_row
    findings = checked(workload, train=[row(0), {**row(1), **second}])
    for texts, text in zip(findings, (error, warning), strict=True):
        assert len(texts) == bool(text)
        assert all(one.startswith("train: ") and text in one for one in texts)


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_rows_are_counted_across_batches(batch: int) -> None:
    rows = [rl_row(number) for number in (1, 2, 1, 3, 2, 1, 7, 8, 9)]
    rows[6]["prompt"] = [message("human", "a")]
    rows[7]["prompt"] = [message("user", "b"), message(" ", "c"), message("critic", "f")]
    errors, warnings = checked(RL, batch, train=rows)
    assert errors == ["train: has a message without a role: 1 row, counted from 0: 7"]
    assert set(warnings) == {
        f"train: has a role that is none of {', '.join(ROLES)}: 2 rows, counted from 0: 6 (human), 7 (critic)",
        "train: has the same prompt as an earlier row: 3 rows, counted from 0: 2 (as 0), 4 (as 1), 5 (as 0)",
    }
    many = [rl_row(number, data_source="" if number % 2 else "x") for number in range(100)]
    ((text,), _warnings) = checked(RL, batch, train=many)
    assert ": 50 rows, counted from 0: 1 ('')" in text and text.endswith(f"19 ('') and {50 - MAX_LISTED_ROWS} more")


def test_prompts_that_are_there_twice() -> None:
    train = [rl_row(number) for number in range(5)]
    (text,) = checked(RL, train=train, val=[rl_row(9), rl_row(3), rl_row(0, data_source="x")])[1]
    assert text.startswith("val: ") and text.endswith(": 2 rows, counted from 0: 1, 2")

    def row(image: bytes) -> dict[str, Any]:
        return rl_row(0, prompt=[message("user", "<image>")], images=[{"bytes": image, "path": None}])

    # The same words about another image are another prompt.
    assert checked(RL, train=[row(b"\x00\xff1"), row(b"\x00\xff2")]) == ([], [])
    assert len(checked(RL, train=[row(b"\x00\xff1"), row(b"\x00\xff2"), row(b"\x00\xff1")])[1]) == 1


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (rl_row(0, prompt=[{"from": "human", "value": "a"}]), "has a column prompt of type list<"),
        (rl_row(0, prompt=[message("user", 3)]), "has messages with content of type int64"),
        (rl_row(0, data_source=3), "has a column data_source of type int64"),
        (rl_row(0, reward_model="42"), "has a column reward_model of type string"),
    ],
)
def test_a_column_of_another_type_is_named_with_it(row: Mapping[str, Any], problem: str) -> None:
    finding = schema_problem(pyarrow.Table.from_pylist([row]).schema, RL)
    assert finding is not None and finding[0].startswith(problem)
