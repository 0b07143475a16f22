from __future__ import annotations

import csv
import gzip
import hashlib
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow
import pytest
from ansible_collections.argus.verl.plugins.module_utils.staging.dataset import formats as dataset_files
from ansible_collections.argus.verl.plugins.module_utils.staging.dataset import hub_source
from ansible_collections.argus.verl.plugins.module_utils.staging.dataset import rows as dataset_rows
from ansible_collections.argus.verl.plugins.module_utils.staging.dataset import sources as dataset_sources
from ansible_collections.argus.verl.plugins.module_utils.staging.dataset import stage as datasets
from ansible_collections.argus.verl.plugins.module_utils.staging.dataset.builder import DatasetBuilder
from ansible_collections.argus.verl.plugins.module_utils.staging.dataset.options import DatasetOptions
from ansible_collections.argus.verl.plugins.module_utils.staging.dataset.schema import RL, SFT
from ansible_collections.argus.verl.plugins.module_utils.staging.errors import StagingError
from ansible_collections.argus.verl.plugins.module_utils.staging.hub import files as hub_files
from ansible_collections.argus.verl.plugins.module_utils.staging.lock import Progress
from ansible_collections.argus.verl.plugins.module_utils.staging.options import StageOptions
from ansible_collections.argus.verl.plugins.module_utils.staging.result import Staged, Status
from hub import Hub
from pyarrow import parquet
from staging_tools import manifest_json

QUESTIONS = [{"question": f"What is {number} + 1?", "answer": f"It is\n#### {number + 1}"} for number in range(20)]
COLUMNS = {"prompt": "question", "ground_truth": "answer"}
MAPPED = {"columns": COLUMNS, "data_source": "openai/gsm8k", "ground_truth_pattern": r"#### (\S+)"}


def rl_row(number: int, **other: Any) -> dict[str, Any]:
    return {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": f"What is {number} + 1?"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(number + 1)},
        "extra_info": {"split": "train", "index": number},
        **other,
    }


def sft_row(number: int) -> dict[str, Any]:
    question, answer = (f"What is {number} + 1?", str(number + 1))
    return {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}


def lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    content = gzip.compress(text, mtime=0) if path.suffix == ".gz" else text
    # What is the same already keeps its time.
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)
    return str(path)


def table(path: Path, rows: list[Mapping[str, Any]], **how: Any) -> str:
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, **how)
    return str(path)


def asked(root: Path, name: str = "data", **options: Any) -> Staged:
    how = {key: options.pop(key) for key in ("check", "repair", "full", "defer") if key in options}
    return datasets.stage_dataset(root, DatasetOptions.of({"name": name, **options}), StageOptions(**how))


def refused(root: Path, **options: Any) -> str:
    with pytest.raises(StagingError) as error:
        asked(root, **options)
    # Nothing is left of it, and nobody is at it.
    parent = root / "datasets"
    assert [path.name for path in parent.iterdir() if path.name != "data"] == [] if parent.exists() else True
    return str(error.value)


def read(root: Path, split: str = "train", name: str = "data") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = parquet.read_table(root / "datasets" / name / f"{split}.parquet").to_pylist()
    return rows


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    directory = tmp_path / "raw"
    directory.mkdir()
    return directory


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "private"
    directory.mkdir()
    return directory


def mapped(raw: Path, root: Path, **options: Any) -> Staged:
    """The questions, brought into verl's form."""
    train, val = lines(raw / "train.jsonl", QUESTIONS[:15]), lines(raw / "val.jsonl", QUESTIONS[15:])
    return asked(root, **{"files": {"train": [train], "val": [val]}, **MAPPED, **options})


# --- Rows as they are ------------------------------------------------------------------------------------------------


def test_rows_in_verls_form_are_taken_as_they_are(raw: Path, root: Path) -> None:
    train, val = [rl_row(number) for number in range(10)], [rl_row(number) for number in range(10, 13)]
    files = {"train": [table(raw / "a.parquet", train)], "val": [table(raw / "b.parquet", val)]}
    assert asked(root, files=files).status == Status.STAGED
    assert (read(root), read(root, "val")) == (train, val)
    target = root / "datasets" / "data"
    manifest = manifest_json(target)
    assert sorted(path.name for path in target.iterdir()) == ["manifest.json", "train.parquet", "val.parquet"]
    assert {name: manifest[name] for name in ("kind", "name", "source", "rows", "report")} == {
        "kind": "rl_dataset",
        "name": "data",
        "source": f"{files['train'][0]}, {files['val'][0]}",
        "rows": {"train": 10, "val": 3},
        "report": [],
    }
    assert [path.name for path in (root / "datasets").iterdir()] == ["data"]


def test_conversations_are_a_dataset_of_another_kind(raw: Path, root: Path) -> None:
    files = {"train": [lines(raw / "a.jsonl", [sft_row(1), sft_row(2)])], "val": [lines(raw / "b.jsonl", [sft_row(3)])]}
    assert asked(root, workload=SFT, files=files).kind == "sft_dataset"
    assert read(root, "val") == [sft_row(3)]


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


def test_patterns_are_taken_in_the_order_of_names_and_files_may_lack_columns(raw: Path, root: Path) -> None:
    for name, number in (("part-2.jsonl", 2), ("part-1.jsonl", 1), ("part-3.jsonl", 3)):
        lines(raw / name, [rl_row(number, **({"level": "hard"} if number == 2 else {}))])
    (raw / ".part-0.jsonl").write_text("not looked at")
    asked(root, files={"train": [f"{raw}/part-*.jsonl", str(raw / "part-1.jsonl")]}, val_rows=1)
    rows = [*read(root, "val"), *read(root)]
    assert [(row["extra_info"]["index"], row["level"]) for row in rows] == [(1, None), (2, "hard"), (3, None)]


def test_types_that_differ_from_one_part_of_a_file_to_the_next_are_brought_together(
    raw: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_files, "BLOCK_BYTES", 300)
    rows = [rl_row(number, score=number, tags=[], when=None) for number in range(6)]
    rows[3] |= {"score": 0.5, "tags": ["a"], "when": "2020-01-01"}
    rows[5]["when"] = "never"
    asked(root, files={"train": [lines(raw / "train.jsonl", rows)]}, val_rows=2)
    assert [row["score"] for row in [*read(root, "val"), *read(root)]] == [0, 0.5, 1, 2, 4, 5]
    assert [row["when"] for row in read(root)] == [None, None, None, "never"]
    assert read(root, "val")[1]["when"] == "2020-01-01"


def test_what_datasets_says_of_columns_stays_and_what_pandas_says_of_rows_does_not(raw: Path, root: Path) -> None:
    metadata = {b"huggingface": b"{}", b"pandas": b"{}"}
    rows = pyarrow.Table.from_pylist([rl_row(number) for number in range(4)]).replace_schema_metadata(metadata)
    parquet.write_table(rows, raw / "train.parquet")
    asked(root, files={"train": [str(raw / "train.parquet")]}, val_rows=1)
    schema = parquet.read_schema(root / "datasets/data/train.parquet")
    assert schema.metadata == {b"huggingface": b"{}"}


def test_the_same_rows_make_the_same_bytes_in_parts_of_bounded_size(
    raw: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_files, "BATCH_ROWS", 8)
    file = table(raw / "train.parquet", [rl_row(number) for number in range(50)], row_group_size=3)
    for name in ("one", "two"):
        asked(root, name=name, files={"train": [file]}, val_rows=10)
    hashes = [
        hashlib.sha256((root / "datasets" / name / "train.parquet").read_bytes()).digest() for name in ("one", "two")
    ]
    assert hashes[0] == hashes[1]
    metadata = parquet.read_metadata(root / "datasets/one/train.parquet")
    assert {metadata.row_group(index).num_rows <= 16 for index in range(metadata.num_row_groups)} == {True}
    assert metadata.num_row_groups < 9


@pytest.mark.parametrize("row_groups", [1, 40])
def test_memory_does_not_grow_with_a_file(raw: Path, row_groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of it compresses: what is read of a file is as large as what is on disk."""
    monkeypatch.setattr(dataset_files, "BATCH_BYTES", 1 << 20)
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


# --- Columns ---------------------------------------------------------------------------------------------------------


def test_columns_are_brought_into_verls_form(raw: Path, root: Path) -> None:
    mapped(raw, root, instruction="Think.", ability="math")
    assert read(root)[3] == {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": "What is 3 + 1? Think."}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "4"},
        "extra_info": {"split": "train", "index": 3},
    }
    assert read(root, "val")[1]["extra_info"] == {"split": "val", "index": 1}
    assert list(read(root)[0]) == ["data_source", "prompt", "ability", "reward_model", "extra_info"]


def test_columns_may_say_what_else_is_given_once(raw: Path, root: Path) -> None:
    rows = [{**row, "from": f"set-{index}", "kind": "sums", "level": index} for index, row in enumerate(QUESTIONS)]
    columns = {**COLUMNS, "data_source": "from", "ability": "kind", "extra": ["level", "answer"]}
    asked(root, files={"train": [lines(raw / "a.jsonl", rows)]}, columns=columns, val_rows=1)
    row = read(root)[4]
    assert (row["data_source"], row["ability"]) == ("set-5", "sums")
    assert row["extra_info"] == {"split": "train", "index": 4, "level": 5, "answer": QUESTIONS[5]["answer"]}


def test_a_system_prompt_comes_first_and_an_instruction_last(raw: Path, root: Path) -> None:
    def said(role: str, content: str) -> dict[str, str]:
        return {"role": role, "content": content}

    turns = [said("user", "a"), said("assistant", "b"), said("user", "c")]
    rows = [{"question": [said("user", f"Hi {number}"), *turns[1:]], "answer": 7} for number in range(3)]
    file = lines(raw / "a.jsonl", rows)
    options = {"columns": COLUMNS, "data_source": "x", "system_prompt": "Be brief.", "instruction": "\nNow."}
    asked(root, files={"train": [file]}, val_rows=1, **options)
    assert [row["prompt"] for row in read(root)] == [
        [said("system", "Be brief."), said("user", f"Hi {number}"), said("assistant", "b"), said("user", "c\nNow.")]
        for number in (1, 2)
    ]
    assert read(root)[0]["reward_model"] == {"style": "rule", "ground_truth": "7"}


def test_messages_keep_further_fields_beside_a_system_prompt(raw: Path, root: Path) -> None:
    rows = [
        {"question": [{"name": "Ann", "content": f"a{number}", "role": "user"}], "answer": "b"} for number in range(2)
    ]
    options = {"columns": COLUMNS, "data_source": "x", "system_prompt": "s", "val_rows": 1}
    asked(root, files={"train": [lines(raw / "a.jsonl", rows)]}, **options)
    assert read(root)[0]["prompt"] == [
        {"name": None, "content": "s", "role": "system"},
        {"name": "Ann", "content": "a1", "role": "user"},
    ]


def test_conversations_of_a_question_and_an_answer(raw: Path, root: Path) -> None:
    file = lines(raw / "a.jsonl", [{**row, "tools": "[]"} for row in QUESTIONS])
    columns = {"prompt": "question", "response": "answer", "extra": ["tools"]}
    asked(root, workload=SFT, files={"train": [file]}, columns=columns, system_prompt="s", instruction="!", val_rows=1)
    assert read(root)[0] == {
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "What is 1 + 1? !"},
            {"role": "assistant", "content": "It is\n#### 2"},
        ],
        "tools": "[]",
    }


def test_conversations_under_another_name(raw: Path, root: Path) -> None:
    file = lines(raw / "a.jsonl", [{"chat": sft_row(number)["messages"], "other": number} for number in range(3)])
    asked(root, workload=SFT, files={"train": [file]}, columns={"messages": "chat"}, val_rows=1)
    assert read(root) == [sft_row(1), sft_row(2)]


def test_the_last_match_is_the_ground_truth_whole_as_it_is(raw: Path, root: Path) -> None:
    answers = ["3 apples, 4 pears: 7", "1,000 or 12", "0 4711"]
    rows = [{"question": f"q{index}", "answer": answer} for index, answer in enumerate(answers)]
    options = {"columns": COLUMNS, "data_source": "x", "ground_truth_pattern": r"([0-9,]+)", "val_rows": 1}
    asked(root, files={"train": [lines(raw / "a.jsonl", rows)]}, **options)
    assert [row["reward_model"]["ground_truth"] for row in [*read(root, "val"), *read(root)]] == ["7", "12", "4711"]


def test_rows_in_which_the_pattern_finds_nothing_are_named_with_what_they_have(raw: Path, root: Path) -> None:
    rows = [dict(row) for row in QUESTIONS]
    rows[3]["answer"], rows[7]["answer"], rows[8]["answer"] = "four", None, ""
    said = refused(root, files={"train": [lines(raw / "a.jsonl", rows)]}, val_rows=2, **MAPPED)
    assert (
        "train: has a ground truth that ground_truth_pattern does not match: 2 rows, counted from 0: 3 (four), 8"
        in said
    )
    assert "train: has no reward_model.ground_truth: 2 rows, counted from 0: 7 (None), 8 ('')" in said


def test_an_empty_question_stays_empty_whatever_is_added_to_it(raw: Path, root: Path) -> None:
    rows = [dict(row) for row in QUESTIONS]
    rows[2]["question"] = ""
    said = refused(root, files={"train": [lines(raw / "a.jsonl", rows)]}, instruction="Think.", val_rows=1, **MAPPED)
    assert "has an empty user or assistant message: 1 row, counted from 0: 2 (user)" in said


def test_a_prompt_with_a_system_message_of_its_own_is_an_error(raw: Path, root: Path) -> None:
    rows = [
        {"question": [{"role": role, "content": "a"}, {"role": "user", "content": role}], "answer": "b"}
        for role in ("user", "system", "tool")
    ]
    options = {"columns": COLUMNS, "data_source": "x", "system_prompt": "s", "val_rows": 1}
    said = refused(root, files={"train": [lines(raw / "a.jsonl", rows)]}, **options)
    assert "train: has its own system message besides system_prompt: 1 row, counted from 0: 1" in said


@pytest.mark.parametrize("option", ["system_prompt", "instruction"])
def test_no_text_is_put_beside_parts(raw: Path, root: Path, option: str) -> None:
    rows = [{"question": [{"role": "user", "content": [{"type": "text"}]}], "answer": "b"} for _row in range(2)]
    options = {"columns": COLUMNS, "data_source": "x", option: "s", "val_rows": 1}
    said = refused(root, files={"train": [lines(raw / "a.jsonl", rows)]}, **options)
    assert said.startswith("columns.prompt: has content of type list<")


def test_what_pyarrow_cannot_do_is_said_of_its_file(raw: Path, root: Path) -> None:
    file = raw / "a.parquet"
    rows = pyarrow.table({"question": pyarrow.array([b"\xff", b"b"]), "answer": ["a", "b"]})
    parquet.write_table(rows, file)
    options = {"columns": COLUMNS, "data_source": "x", "val_rows": 1}
    assert "column question: is of type binary, neither text nor" in refused(
        root, files={"train": [str(file)]}, **options
    )
    empty = lines(raw / "b.jsonl", [rl_row(number, extra_info={"more": {}}) for number in range(2)])
    said = refused(root, files={"train": [empty]}, val_rows=1)
    assert said.startswith("val.parquet: cannot be written: Cannot write struct type 'more' with no child field")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"instruction": "x"}, "instruction: apply to columns, but columns is not set"),
        ({"columns": {"prompt": "question"}}, "columns: has no ground_truth"),
        ({"columns": COLUMNS}, "columns: has no data_source. Set data_source"),
        (
            {"columns": {**COLUMNS, "data_source": "a"}, "data_source": "b"},
            "has data_source, which is also set as a text",
        ),
        ({"columns": {**COLUMNS, "extra": ["index"]}, "data_source": "b"}, "has index in extra"),
        ({"columns": {"response": "a"}}, "columns: has no response for rl"),
        (
            {"workload": SFT, "columns": {"messages": "a", "prompt": "b"}},
            "needs either messages, or prompt and response",
        ),
        ({"workload": SFT, "columns": {"prompt": "b"}}, "columns: has no response"),
        ({"workload": SFT, "columns": {"messages": "a"}, "instruction": "b"}, "does not use instruction here"),
        ({"columns": COLUMNS, "data_source": "x", "ground_truth_pattern": "("}, "is not a regular expression"),
        ({"columns": COLUMNS, "data_source": "x", "ground_truth_pattern": "a"}, "ground_truth_pattern: has 0 groups"),
        ({"columns": {**COLUMNS, "prompt": "Question"}, "data_source": "x"}, 'Did you mean "question"?'),
        ({"columns": {**COLUMNS, "prompt": "number"}, "data_source": "x"}, "column number: is of type int64, neither"),
    ],
)
def test_columns_that_do_not_fit_are_refused(raw: Path, root: Path, options: dict[str, Any], said: str) -> None:
    rows = [{**row, "number": index} for index, row in enumerate(QUESTIONS)]
    assert said in refused(root, files={"train": [lines(raw / "a.jsonl", rows)]}, val_rows=1, **options)


# --- Validation ------------------------------------------------------------------------------------------------------


def test_rows_for_validation_are_spread_over_all_and_counted_anew(raw: Path, root: Path) -> None:
    asked(root, files={"train": [lines(raw / "a.jsonl", QUESTIONS)]}, val_rows=4, **MAPPED)
    assert [row["reward_model"]["ground_truth"] for row in read(root, "val")] == ["1", "6", "11", "16"]
    assert [row["extra_info"] for row in read(root, "val")] == [{"split": "val", "index": index} for index in range(4)]
    assert [row["extra_info"]["index"] for row in read(root)] == list(range(16))
    assert manifest_json(root / "datasets/data")["rows"] == {"train": 16, "val": 4}


def test_findings_name_rows_as_they_were_before_some_were_taken_out(raw: Path, root: Path) -> None:
    rows = [*QUESTIONS, QUESTIONS[5], QUESTIONS[1], QUESTIONS[1]]
    asked(root, files={"train": [lines(raw / "a.jsonl", rows)]}, val_rows=4, **MAPPED)
    assert manifest_json(root / "datasets/data")["report"] == [
        "train: has the same prompt as an earlier row: 2 rows, counted from 0: 21 (as 1), 22 (as 1)",
        "val: has a prompt that is also in train, so validation repeats training data: 1 row, counted from 0: 5",
    ]


@pytest.mark.parametrize("wanted", [0, 20, 21, -1])
def test_validation_needs_some_rows_and_not_all(raw: Path, root: Path, wanted: int) -> None:
    file = lines(raw / "a.jsonl", QUESTIONS)
    assert f"val_rows: is {wanted}, of 20 rows" in refused(root, files={"train": [file]}, val_rows=wanted, **MAPPED)


def test_validation_is_either_given_or_taken(raw: Path, root: Path) -> None:
    assert "val: has no rows. Set files.val, or set val_rows" in refused(root, files={"train": ["/a.jsonl"]})
    files = {"train": ["/a.jsonl"], "val": ["/b.jsonl"]}
    assert "val_rows: is set, but val already has rows" in refused(root, files=files, val_rows=3)


# --- What is refused -------------------------------------------------------------------------------------------------


def test_all_errors_are_said_at_once_and_nothing_is_staged(raw: Path, root: Path) -> None:
    train, val = [rl_row(number) for number in range(3)], [rl_row(number) for number in range(3, 5)]
    train[1]["prompt"], val[0]["data_source"] = [{"role": "user", "content": ""}], ""
    files = {"train": [lines(raw / "a.jsonl", train)], "val": [lines(raw / "b.jsonl", val)]}
    said = refused(root, files=files)
    assert said.startswith(
        f"{root}/datasets/data: is not fit for training:\n- train: has an empty user or assistant message"
    )
    assert "\n- val: has an empty data_source" in said
    assert list((root / "datasets").iterdir()) == []


def test_a_dataset_for_the_other_workload_says_so(raw: Path, root: Path) -> None:
    rl, sft = lines(raw / "rl.jsonl", [rl_row(1), rl_row(2)]), lines(raw / "sft.jsonl", [sft_row(1), sft_row(2)])
    said = refused(root, files={"train": [rl]}, val_rows=1, workload=SFT)
    assert said == f"{rl}: is a dataset for ppo and grpo (prompt, reward_model), not for sft. Set workload to rl."
    said = refused(root, files={"train": [sft]}, val_rows=1)
    assert said == f"{sft}: is a dataset for sft (messages), not for ppo and grpo. Set workload to sft."


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.jsonl", b'{"a": 1}\n{"a": \n', "is not readable as JSON lines: "),
        ("a.jsonl", b'{"a": 1}\n{"a": "x"}\n', "Column(/a) changed from number to string in row 1"),
        ("a.json", b'[{"a": 1}, {"a": "x"}]', "is not readable as JSON: "),
        ("a.json", b"[1, 2]", "is not readable as JSON: "),
        ("a.jsonl.gz", b"not compressed", "is not readable as JSON lines: "),
        ("a.csv", b"a,b\n1,2,3\n", "is not readable as CSV: CSV parse error: Expected 2 columns, got 3"),
        ("a.csv", b"", "is not readable as CSV: Empty CSV file"),
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
    assert said.startswith(f"{one}: and later rows or files have different types: ")
    assert "Field level has incompatible types: int64 vs string" in said


def test_no_rows_at_all_are_refused(raw: Path, root: Path) -> None:
    files = {"train": [lines(raw / "a.jsonl", [rl_row(1)])], "val": [lines(raw / "b.jsonl", [])]}
    assert f"{raw}/b.jsonl: there are no rows" in refused(root, files=files)


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
            "files.train: no file matches /nothing/*.jsonl here",
        ),
        ({"name": "Upper", "tiny": True}, 'name: the name "Upper" is not allowed'),
    ],
)
@pytest.mark.parametrize("check", [True, False])
def test_sources_that_do_not_fit_are_refused_in_check_mode_too(
    root: Path, options: dict[str, Any], said: str, check: bool
) -> None:
    assert said in refused(root, **options, check=check)


# --- Again -----------------------------------------------------------------------------------------------------------


def test_check_mode_makes_nothing(raw: Path, root: Path) -> None:
    assert mapped(raw, root, check=True).status == Status.STAGED
    assert list(root.iterdir()) == []


def test_what_is_there_is_not_made_again(raw: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_files_are_compared_until_they_are_gone(raw: Path, root: Path) -> None:
    one, two = lines(raw / "1.jsonl", [rl_row(1)]), lines(raw / "2.jsonl", [rl_row(2)])
    pattern = {"files": {"train": [f"{raw}/*.jsonl"]}, "val_rows": 1}
    asked(root, **pattern)
    assert asked(root, files={"train": [one, two]}, val_rows=1).status == Status.EXISTS
    assert f"was also staged from {two}, which files.train does not have now" in refused(
        root, files={"train": [one]}, val_rows=1
    )
    assert "in another order" in refused(root, files={"train": [two, one]}, val_rows=1)
    assert "was staged with val_rows 1, but the request has val_rows 2" in refused(root, **{**pattern, "val_rows": 2})
    three = lines(raw / "3.jsonl", [rl_row(3)])
    assert f"was staged without {three}, which files.train has now" in refused(root, **pattern)
    Path(three).unlink()
    time = Path(one).stat().st_mtime_ns
    os.utime(one, ns=(time, time + 1))
    assert f"was staged from {one}, which was changed since (another time)" in refused(root, **pattern)
    lines(Path(one), [rl_row(1), rl_row(4)])
    assert f"was staged from {one}, which was changed since (" in refused(root, **pattern)
    Path(one).unlink()
    assert asked(root, **pattern).status == Status.EXISTS
    Path(two).unlink()
    assert asked(root, **pattern).status == Status.EXISTS
    assert f"was staged from {raw}/*.jsonl, and now tiny is asked for" in refused(root, tiny=True)


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


def test_only_what_takes_long_is_deferred(raw: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataset_sources, "QUICK_BYTES", 10)
    assert mapped(raw, root, defer=True).status == Status.DEFERRED
    assert asked(root, name="tiny", tiny=True, defer=True).status == Status.STAGED
    monkeypatch.setattr(dataset_sources, "QUICK_BYTES", 1 << 20)
    assert mapped(raw, root, model="tiny", max_prompt_length=3, defer=True).status == Status.DEFERRED
    assert mapped(raw, root, defer=True).status == Status.STAGED


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "parquet", "csv"])
def test_progress_is_told_in_bytes_of_the_source(raw: Path, root: Path, ending: str) -> None:
    path = raw / f"a.{ending}"
    if ending == "parquet":
        table(path, [rl_row(number) for number in range(1000)])
    elif ending == "csv":
        path.write_text("a,b\n" + "1,2\n" * 1000)
    else:
        lines(path, [rl_row(number) for number in range(1000)])
    progress = Progress()
    progress.begin("reading", dataset_files.work(path))
    rows = dataset_rows.Rows([path], progress)
    assert sum(batch.num_rows for batch in rows.batches()) == rows.count() == 1000
    assert progress.total * 0.95 <= progress.done <= progress.total


# --- Scripts ---------------------------------------------------------------------------------------------------------

# Written as verl's are: its own package is imported, the raw data is given by a path, test is what validates.
SCRIPT_TEXT = """
import argparse
import json
import os
import pathlib
import sys

import pyarrow
from pyarrow import parquet

from verl.utils.hdfs_io import makedirs

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    FLAGS
    parser.add_argument("--local_dataset_path", default=None)
    parser.add_argument("--hdfs_dir", default=None)
    args = parser.parse_args()
    directory = DIRECTORY
    rows = [json.loads(line) for line in open(args.local_dataset_path)]
    print("read", len(rows), "rows")
    for split, part in (("train", rows[:-1]), ("test", rows[-1:])):
        parquet.write_table(pyarrow.Table.from_pylist(part), os.path.join(directory, split + ".parquet"))
        json.dump(part[0], open(os.path.join(directory, split + "_example.json"), "w"))
    for name in ("PYTHONPATH", "HF_HOME", "PYTHONDONTWRITEBYTECODE"):
        print(name, os.environ[name], file=sys.stderr)
    EXTRA
"""
OLD = ("parser.add_argument('--local_dir', default='~/data/x')", "args.local_dir")
NEW = (
    'parser.add_argument("--local_dir", default=None); parser.add_argument("--local_save_dir", default="~/data/x")',
    'args.local_save_dir if args.local_dir is None else exit("Warning: local_dir is deprecated")',
)


def snapshot(root: Path, flags: tuple[str, str] = NEW, extra: str = "", name: str = "sums.py") -> Path:
    code = root / "common/code/verl/verl-main"
    (code / "verl/utils").mkdir(parents=True, exist_ok=True)
    (code / "verl/__init__.py").touch()
    (code / "verl/utils/__init__.py").touch()
    (code / "verl/utils/hdfs_io.py").write_text("def makedirs(path): ...\n")
    script = code / "examples/data_preprocess" / name
    script.parent.mkdir(parents=True, exist_ok=True)
    text = SCRIPT_TEXT.replace("FLAGS", flags[0]).replace("DIRECTORY", flags[1]).replace("EXTRA", extra)
    script.write_text(textwrap.dedent(text))
    return code


def scripted(raw: Path, root: Path, **options: Any) -> dict[str, Any]:
    file = lines(raw / "a.jsonl", [rl_row(number) for number in range(5)])
    return {"script": "sums.py", "code_path": "verl-main", "arguments": ["--local_dataset_path", file], **options}


@pytest.mark.parametrize("flags", [OLD, NEW], ids=["up to 0.5", "since 0.6"])
def test_verls_own_scripts_are_run_whatever_they_call_their_output(
    raw: Path, root: Path, flags: tuple[str, str]
) -> None:
    code = snapshot(root, flags)
    before = sorted(path.relative_to(code) for path in code.rglob("*"))
    options = scripted(raw, root)
    assert asked(root, **options).status == Status.STAGED
    assert [row["extra_info"]["index"] for row in [*read(root), *read(root, "val")]] == [0, 1, 2, 3, 4]
    target = root / "datasets/data"
    assert sorted(path.name for path in target.iterdir()) == ["manifest.json", "train.parquet", "val.parquet"]
    manifest = manifest_json(target)
    assert manifest["source"] == "sums.py of verl-main"
    assert {name: manifest["identity"][name] for name in ("script", "code_path", "arguments")} == {
        "script": "sums.py",
        "code_path": "verl-main",
        "arguments": options["arguments"],
    }
    assert sorted(path.relative_to(code) for path in code.rglob("*")) == before
    assert asked(root, **options).status == Status.EXISTS
    assert asked(root, **{**options, "code_path": str(code)}).status == Status.EXISTS
    assert "was staged with arguments [" in refused(
        root, **{**options, "arguments": ["--local_dataset_path", "/other"]}
    )


def test_a_script_sees_the_snapshot_and_the_shared_cache(raw: Path, root: Path) -> None:
    code = snapshot(root, extra="sys.exit(3)")
    said = refused(root, **scripted(raw, root))
    assert "sums.py: ended with exit code 3:\nread 5 rows\n" in said
    assert f"\nPYTHONPATH {code}\nHF_HOME {root}/hf\nPYTHONDONTWRITEBYTECODE 1\n" in said


# As a script does it that loads its data from the hub.
FROM_HUB = """
import huggingface_hub
for part in ("train-0", "train-1", "test"):
    file = huggingface_hub.hf_hub_download("team/sums", "main/" + part + ".jsonl", repo_type="dataset")
    print(part, "is", "below" if os.environ["HF_HOME"] in file else "elsewhere")
assert not any(os.environ["HF_TOKEN"] in argument for argument in sys.argv)
"""


def from_hub(raw: Path, root: Path, hub: Hub, more: str = "") -> dict[str, Any]:
    snapshot(root, extra=textwrap.indent(FROM_HUB + more, "    ").strip())
    return scripted(raw, root, endpoint=hub.url, token=hub.token)


def test_a_script_has_the_mirror_and_the_token(
    raw: Path, root: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_node")
    put(hub)
    options = from_hub(raw, root, hub)
    assert asked(root, **options).status == Status.STAGED
    assert {each.token for each in hub.asked if "team/sums" in each.path} == {hub.token}
    assert hub.token not in (root / "datasets/data/manifest.json").read_text()
    # Where it came from and who fetched it is not what it is.
    assert asked(root, **{**options, "endpoint": None, "token": None}).status == Status.EXISTS


def test_without_them_a_script_has_what_the_node_has(
    raw: Path, root: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.url)
    monkeypatch.setenv("HF_TOKEN", hub.token)
    put(hub)
    assert asked(root, **{**from_hub(raw, root, hub), "endpoint": None, "token": None}).status == Status.STAGED


def test_what_a_script_says_of_its_token_is_not_shown(raw: Path, root: Path) -> None:
    snapshot(root, extra="sys.exit(os.environ['HF_TOKEN'] + ' at ' + os.environ['HF_ENDPOINT'])")
    options = scripted(raw, root, endpoint="https://ann:geheim@mirror.example.com/", token="hf_right\n")
    said = refused(root, **options)
    assert "\n…\n at https://…@mirror.example.com\n" in said
    assert "hf_right" not in said and "geheim" not in said
    assert "hf_right" not in repr(dataset_sources.source_of(DatasetOptions.of({"name": "data", **options}), root))
    assert 'endpoint: "mirror" is not an address' in refused(root, **{**options, "endpoint": "mirror"})


def test_of_a_script_that_fails_the_last_lines_are_shown(raw: Path, root: Path) -> None:
    snapshot(root, extra="print(*range(100), sep='\\n'); raise SystemExit('no such dataset')")
    said = refused(root, **scripted(raw, root))
    assert "\n99\n" in said and "\n70\n" not in said
    assert "no such dataset" in said


def test_what_a_script_calls_validation_is_better_than_its_test(raw: Path, root: Path) -> None:
    extra = "os.rename(os.path.join(directory, 'test.parquet'), os.path.join(directory, 'validation.parquet'));"
    extra += "open(os.path.join(directory, 'test.parquet'), 'w').write('not read')"
    snapshot(root, extra=extra)
    asked(root, **scripted(raw, root))
    assert len(read(root, "val")) == 1


def test_a_script_that_writes_no_validation_leaves_it_to_us(raw: Path, root: Path) -> None:
    snapshot(root, extra="os.remove(os.path.join(directory, 'test.parquet'))")
    assert "val: has no rows" in refused(root, **scripted(raw, root))
    asked(root, **scripted(raw, root, val_rows=1))
    assert (len(read(root)), len(read(root, "val"))) == (3, 1)


def test_a_script_that_writes_nothing_is_an_error(raw: Path, root: Path) -> None:
    snapshot(root, extra="[path.unlink() for path in pathlib.Path(directory).iterdir()]")
    assert "wrote no train.parquet, but nothing:\nread 5 rows" in refused(root, **scripted(raw, root))


def test_what_a_script_writes_is_checked(raw: Path, root: Path) -> None:
    snapshot(root)
    file = lines(raw / "b.jsonl", [rl_row(1, data_source=""), rl_row(2)])
    said = refused(root, **scripted(raw, root, arguments=["--local_dataset_path", file]))
    assert "train: has an empty data_source" in said


@pytest.mark.parametrize("check", [True, False])
def test_a_script_that_is_not_there_or_has_no_output_flag(raw: Path, root: Path, check: bool) -> None:
    code = snapshot(root, ("", "args.hdfs_dir"))
    said = refused(root, **scripted(raw, root), check=check)
    assert "sums.py: has neither of the options --local_save_dir and --local_dir" in said
    (code / "examples/data_preprocess/sums.py").rename(code / "examples/data_preprocess/gsm8k.py")
    said = refused(root, **scripted(raw, root), check=check)
    assert "cannot be read (No such file or directory); the scripts there are: gsm8k.py" in said
    assert "A snapshot of a release has none" in said


def test_who_waits_for_a_script_sees_that_it_lives(raw: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_files, "PROGRESS_SECONDS", 0.01)
    seen: list[str] = []
    monkeypatch.setattr(Progress, "write", lambda progress: seen.append(progress.what))
    snapshot(root, extra="import time; time.sleep(0.2)")
    asked(root, **scripted(raw, root))
    assert seen.count("running sums.py") > 3


# --- Tiny ones -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("workload", "rows"), [(RL, {"train": 128, "val": 16}), (SFT, {"train": 128, "val": 32})])
def test_tiny_ones_are_made_on_the_spot(root: Path, workload: str, rows: dict[str, int]) -> None:
    assert asked(root, workload=workload, tiny=True).status == Status.STAGED
    assert manifest_json(root / "datasets/data")["rows"] == rows
    assert asked(root, workload=workload, tiny=True).status == Status.EXISTS
    other = RL if workload == SFT else SFT
    assert f"is of kind {workload}_dataset, not {other}_dataset" in refused(root, workload=other, tiny=True)
    files = {"train": ["/a.jsonl"], "val": ["/b.jsonl"]}
    assert "was staged from tiny, but the request has /a.jsonl, /b.jsonl" in refused(
        root, workload=workload, files=files
    )


# --- HuggingFace -----------------------------------------------------------------------------------------------------


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as hub:
        yield hub


def put(hub: Hub, revision: str = "main", **files: list[dict[str, Any]]) -> str:
    """A commit with the questions, in two parts and among other files."""
    contents = {
        "README.md": b"# Sums\n",
        "other/train-0.jsonl": b"not looked at",
        "main/extra.py": b"raise SystemExit('run')",
        "main/train-1.jsonl": jsonl(QUESTIONS[8:15]),
        "main/train-0.jsonl": jsonl(QUESTIONS[:8]),
        "main/test.jsonl": jsonl(QUESTIONS[15:]),
        **{name.replace("__", "/") + ".jsonl": jsonl(rows) for name, rows in files.items()},
    }
    return hub.add("team/sums", contents, revision, kind="datasets", private=True)


def jsonl(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def hubs(hub: Hub, /, **options: Any) -> dict[str, Any]:
    files = {"train": ["main/train-*.jsonl"], "val": ["main/test.jsonl"]}
    return {"hub": "team/sums", "files": files, "endpoint": hub.url, "token": hub.token, **MAPPED, **options}


def test_a_repository_is_fetched_once_and_pinned(root: Path, hub: Hub) -> None:
    commit = put(hub)
    assert asked(root, **hubs(hub), check=True).status == Status.STAGED
    assert asked(root, **hubs(hub), defer=True).status == Status.DEFERRED
    assert hub.gets("/") == [each for each in hub.gets("/") if "/api/datasets/" in each.path]
    assert asked(root, **hubs(hub)).status == Status.STAGED
    assert [row["reward_model"]["ground_truth"] for row in read(root)] == [str(number) for number in range(1, 16)]
    assert not hub.gets("README.md") and not hub.gets("extra.py") and not hub.gets("other/")
    assert (root / "hf/hub/datasets--team--sums/snapshots" / commit / "main/test.jsonl").is_file()
    text = (root / "datasets/data/manifest.json").read_text()
    assert hub.token not in text
    said = json.loads(text)
    assert {name: said[name] for name in ("source", "revision", "commit", "endpoint")} == {
        "source": "team/sums",
        "revision": "main",
        "commit": commit,
        "endpoint": hub.url,
    }


def test_what_is_there_asks_nobody_and_stays_what_it_was(root: Path, hub: Hub) -> None:
    commit = put(hub)
    asked(root, **hubs(hub))
    put(hub, main__test=QUESTIONS[16:])
    count = len(hub.asked)
    assert asked(root, **hubs(hub)).status == Status.EXISTS
    assert asked(root, **hubs(hub), revision=commit).status == Status.EXISTS
    expected = f"was staged from revision main (commit {commit}), but the request has revision v2"
    assert expected in refused(root, **hubs(hub), revision="v2")
    files = {"train": ["main/train-*.jsonl"], "val": ["main/other.jsonl"]}
    assert "was staged with files {" in refused(root, **hubs(hub, files=files))
    assert "was staged with hub team/sums, but the request has hub team/x" in refused(root, **hubs(hub, hub="team/x"))
    assert len(hub.asked) == count


def test_it_is_repaired_from_its_commit(root: Path, hub: Hub) -> None:
    put(hub)
    asked(root, **hubs(hub))
    file = root / "datasets/data/val.parquet"
    before = file.read_bytes()
    file.unlink()
    put(hub, main__test=QUESTIONS[16:])
    shutil.rmtree(root / "hf")
    assert asked(root, **hubs(hub), repair=True).status == Status.REPAIRED
    assert file.read_bytes() == before
    assert manifest_json(root / "datasets/data")["revision"] == "main"


def test_what_is_removed_goes_from_the_cache_too(root: Path, hub: Hub) -> None:
    commit = put(hub)
    asked(root, **hubs(hub))
    assert removed(root, check=True).status == Status.REMOVED
    assert asked(root, **hubs(hub)).status == Status.EXISTS
    with pytest.raises(StagingError, match="is used by grpo-1"):
        removed(root, users=["grpo-1"])
    assert (root / "hf/hub/datasets--team--sums/snapshots" / commit).is_dir()
    assert removed(root).status == Status.REMOVED
    assert not (root / "hf/hub/datasets--team--sums").exists()
    assert list((root / "datasets").iterdir()) == []
    assert removed(root).status == Status.ABSENT


def test_what_another_dataset_is_of_stays_in_the_cache(raw: Path, root: Path, hub: Hub) -> None:
    old = put(hub)
    asked(root, **hubs(hub))
    asked(root, name="other", **hubs(hub), val_rows=None)
    new = put(hub, main__test=QUESTIONS[16:])
    asked(root, name="newer", **hubs(hub))
    # A name that somebody has put there by hand, and files of the node.
    (root / "datasets/by-hand").mkdir()
    mapped(raw, root, name="of-files")
    cached = root / "hf/hub/datasets--team--sums/snapshots"
    for name, left in (("data", {old, new}), ("of-files", {old, new}), ("newer", {old})):
        assert removed(root, name).status == Status.REMOVED
        assert {path.name for path in cached.iterdir()} == left
    assert (cached / old / "main/test.jsonl").read_bytes() == jsonl(QUESTIONS[15:])
    removed(root, "other")
    assert not cached.exists()


def test_what_is_removed_is_of_whichever_workload(root: Path) -> None:
    asked(root, workload=SFT, tiny=True)
    assert removed(root) == Staged("sft_dataset", "data", str(root / "datasets/data"), Status.REMOVED)


def removed(root: Path, name: str = "data", users: Sequence[str] = (), **how: bool) -> Staged:
    return datasets.remove_dataset(root, name, RL, lambda target: users, **how)


@pytest.mark.parametrize("check", [True, False])
def test_what_the_hub_does_not_have_is_said_before_anything_is_fetched(root: Path, hub: Hub, check: bool) -> None:
    put(hub)
    assert "team/nothing on " in refused(root, **hubs(hub, hub="team/nothing"), check=check)
    assert "has no revision v2" in refused(root, **hubs(hub), revision="v2", check=check)
    assert "does not exist or is private" in refused(root, **hubs(hub, token=None), check=check)
    said = refused(root, **hubs(hub, files={"train": ["main/train-*.jsonl"], "val": ["val/*"]}), check=check)
    assert said.startswith(
        "team/sums: has no file val/* (files.val); it has: README.md, main/extra.py, main/test.jsonl"
    )
    assert not hub.gets(".jsonl")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hub": "gsm8k"}, 'hub: "gsm8k" is not a repository'),
        ({"endpoint": "mirror"}, 'endpoint: "mirror" is not an address'),
    ],
)
def test_names_of_the_hub_are_checked(root: Path, hub: Hub, options: dict[str, Any], said: str) -> None:
    assert said in refused(root, **hubs(hub, **options))


def test_the_token_is_not_shown(root: Path, hub: Hub) -> None:
    assert hub.token not in repr(dataset_sources.source_of(DatasetOptions.of({"name": "data", **hubs(hub)}), root))


def test_files_are_taken_once_in_the_order_of_their_patterns() -> None:
    names = ["README.md", "a/1", "a/2", "a/[x]", "b/1"]
    assert hub_source.chosen("x", {"train": ["b/*", "a/*"], "val": ["a/[[]x]", "a/[12]", "a/1"]}, names) == {
        "train": ["b/1", "a/1", "a/2", "a/[x]"],
        "val": ["a/[x]", "a/1", "a/2"],
    }


def test_of_thousands_of_files_those_that_are_wanted_are_known_at_once(root: Path, hub: Hub) -> None:
    """With a pattern for each that is not, and every pattern compared with every file, this took minutes."""
    content = jsonl(QUESTIONS[:2])
    names = [f"part-{number:04}" for number in range(2000)]
    hub.add("team/sums", {f"{name}.{end}": content for name in names for end in ("jsonl", "md")}, kind="datasets")
    options = hubs(hub, files={"train": ["*.jsonl"], "val": ["part-1*.jsonl"]})
    source = dataset_sources.source_of(DatasetOptions.of({"name": "data", **options}), root)
    assert isinstance(source, hub_source.Hub)
    assert [file.name for file in source.repository.files] == [f"{name}.jsonl" for name in names]
    assert source.size() - sum(file.size for file in source.repository.files) == 2000 * len(content)


# --- Length ----------------------------------------------------------------------------------------------------------


class Letters:
    """Every letter is a token."""

    loaded: ClassVar[list[Path]] = []

    @classmethod
    def from_pretrained(cls, path: Path) -> Letters:
        cls.loaded.append(path)
        return cls()

    def apply_chat_template(self, conversation: list[Any], **how: Any) -> list[str]:
        return ["".join(message["content"] for message in messages) for messages in conversation]

    def __call__(self, text: list[str], **how: Any) -> dict[str, list[str]]:
        return {"input_ids": text}


@pytest.fixture
def model(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a model that is not there yet."""
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace(AutoTokenizer=Letters))
    # Not our business here, and it stays for all of the process.
    monkeypatch.setattr(datasets, "make_intern_a_function", lambda: None)
    monkeypatch.setattr(Letters, "loaded", [])
    return root / "common/models/Tiny"


def put_model(model: Path) -> None:
    model.mkdir(parents=True)
    (model / "tokenizer_config.json").write_text("{}")


TOO_LONG = "is longer than 14 tokens, so verl drops the row or stops: 5 rows, counted from 0"
LENGTHS = [
    f"train: {TOO_LONG}: " + ", ".join(f"{number} (15 tokens)" for number in range(10, 15)),
    f"val: {TOO_LONG}: " + ", ".join(f"{number} (15 tokens)" for number in range(5)),
]


def manifest(root: Path) -> dict[str, Any]:
    return manifest_json(root / "datasets/data")


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


def test_prompts_of_a_dataset_that_is_there_are_measured_when_somebody_asks(raw: Path, root: Path, model: Path) -> None:
    mapped(raw, root)
    before, made = {path.name: path.stat() for path in (root / "datasets/data").iterdir()}, manifest(root)
    measure = {"model": "Tiny", "max_prompt_length": 14}
    with pytest.raises(StagingError, match="Tiny has no tokenizer"):
        mapped(raw, root, **measure)
    put_model(model)
    assert mapped(raw, root, **measure, check=True).notes == ()
    assert mapped(raw, root, **measure, defer=True).status == Status.DEFERRED
    assert Letters.loaded == [] and manifest(root) == made
    measured = mapped(raw, root, **measure)
    assert (measured.status, measured.changed, list(measured.notes)) == (Status.EXISTS, False, LENGTHS)
    assert manifest(root) == {**made, "report": LENGTHS, "measured": measure}
    assert list(manifest(root))[-1] == "files"
    after = {path.name: path.stat() for path in (root / "datasets/data").iterdir()}
    assert {name for name in before if after.pop(name) != before[name]} == {"manifest.json"} and not after
    assert [path.name for path in (root / "datasets").iterdir()] == ["data"]
    # Not again until somebody asks for something else.
    for how in ({}, {"defer": True}, {"full": True}):
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
    monkeypatch.setattr(dataset_files, "BATCH_ROWS", 4)
    options = {"files": {"train": [lines(raw / "a.jsonl", [*QUESTIONS, QUESTIONS[5]])]}, "val_rows": 4, **MAPPED}
    measure = {"model": "Tiny", "max_prompt_length": 14}
    asked(root, name="at-once", **options, **measure)
    asked(root, **options)
    warnings = manifest(root)["report"]
    asked(root, **options, **measure)
    at_once = manifest_json(root / "datasets/at-once")["report"]
    assert len(warnings) == 1 and len(at_once) == 3
    assert sorted(manifest(root)["report"]) == sorted(at_once)


def test_what_is_wrong_with_rows_that_are_there_is_said_as_of_new_ones(
    raw: Path, root: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when they were staged before somebody knew that it is wrong."""
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


def test_what_was_repaired_is_measured_as_well(raw: Path, root: Path, model: Path) -> None:
    put_model(model)
    mapped(raw, root)
    (root / "datasets/data/val.parquet").unlink()
    mended = mapped(raw, root, model="Tiny", max_prompt_length=14, repair=True)
    assert (mended.status, list(mended.notes)) == (Status.REPAIRED, ["val.parquet is missing", *LENGTHS])
    assert manifest(root)["report"] == LENGTHS
