"""Conversion of columns to verl's schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet
from staging_datasets import COLUMNS, MAPPED, QUESTIONS, asked, lines, mapped, read, refused, rl_row

from argus.checks.dataset import SFT


def test_columns_are_converted_to_verls_schema(raw: Path, root: Path) -> None:
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


def test_a_system_prompt_comes_first_and_an_instruction_last(raw: Path, root: Path) -> None:
    def said(role: str, content: str) -> dict[str, str]:
        return {"role": role, "content": content}

    rows = [
        {"question": [said("user", f"Hi {number}"), said("assistant", "b"), said("user", "c")], "answer": 7}
        for number in range(3)
    ]
    options = {"columns": COLUMNS, "data_source": "x", "system_prompt": "Be brief.", "instruction": "\nNow."}
    asked(root, files={"train": [lines(raw / "a.jsonl", rows)]}, val_rows=1, **options)
    assert read(root)[0]["prompt"] == [
        *(said("system", "Be brief."), said("user", "Hi 1"), said("assistant", "b"), said("user", "c\nNow."))
    ]
    assert read(root)[0]["reward_model"] == {"style": "rule", "ground_truth": "7"}
    file = lines(raw / "b.jsonl", [{**row, "level": "1"} for row in QUESTIONS])
    columns = {"prompt": "question", "response": "answer", "extra": ["level"]}
    sft = {"workload": SFT, "columns": columns, "system_prompt": "s", "instruction": "!", "val_rows": 1}
    asked(root, "sft", files={"train": [file]}, **sft)
    messages = [said("system", "s"), said("user", "What is 1 + 1? !"), said("assistant", "It is\n#### 2")]
    assert read(root, name="sft")[0] == {"messages": messages, "level": "1"}


def test_the_ground_truth_is_the_last_match_without_what_is_to_be_removed(raw: Path, root: Path) -> None:
    answers = ["3 apples, 4 pears: 7", "1,000 or 12", "0 4711"]
    file = lines(raw / "a.jsonl", [{"question": f"q{index}", "answer": answer} for index, answer in enumerate(answers)])
    options = {"columns": COLUMNS, "data_source": "x", "ground_truth_pattern": r"([0-9,]+)", "val_rows": 1}
    for name, removed, truths in (("all", "", ["7", "12", "4711"]), ("some", "14", ["7", "2", "7"])):
        asked(root, name, files={"train": [file]}, ground_truth_remove=removed, **options)
        rows = [*read(root, "val", name), *read(root, name=name)]
        assert [row["reward_model"]["ground_truth"] for row in rows] == truths


def test_rows_that_the_pattern_does_not_match_are_named_with_their_values(raw: Path, root: Path) -> None:
    rows = [dict(row) for row in QUESTIONS]
    rows[3]["answer"], rows[7]["answer"], rows[8]["answer"] = "four", None, ""
    said = refused(root, files={"train": [lines(raw / "a.jsonl", rows)]}, val_rows=2, **MAPPED)
    assert (
        "train: has a ground truth that ground_truth_pattern does not match: 2 rows, counted from 0: 3 (four), 8"
        in said
    )
    assert "train: has no reward_model.ground_truth: 2 rows, counted from 0: 7 (None), 8 ('')" in said


def test_prompts_that_take_no_further_text(raw: Path, root: Path) -> None:
    rows = [
        {"question": [{"role": role, "content": "a"}, {"role": "user", "content": role}], "answer": "b"}
        for role in ("user", "system", "tool")
    ]
    options = {"columns": COLUMNS, "data_source": "x", "val_rows": 1}
    said = refused(root, files={"train": [lines(raw / "a.jsonl", rows)]}, **options, system_prompt="s")
    assert "train: has its own system message besides system_prompt: 1 row, counted from 0: 1" in said
    rows = [{"question": [{"role": "user", "content": [{"type": "text"}]}], "answer": "b"} for _row in range(2)]
    for option in ("system_prompt", "instruction"):
        said = refused(root, files={"train": [lines(raw / "a.jsonl", rows)]}, **options, **{option: "s"})
        assert said.startswith("columns.prompt: has content of type list<")


def test_an_error_of_pyarrow_names_the_file(raw: Path, root: Path) -> None:
    file = raw / "a.parquet"
    rows = pyarrow.table({"question": pyarrow.array([b"\xff", b"b"]), "answer": ["a", "b"]})
    parquet.write_table(rows, file)
    options = {"columns": COLUMNS, "data_source": "x", "val_rows": 1}
    assert "column question: is of type binary, neither text nor" in refused(
        root, files={"train": [str(file)]}, **options
    )
    empty = lines(raw / "b.jsonl", [rl_row(number, extra_info={"more": {}}) for number in range(2)])
    said = refused(root, files={"train": [empty]}, val_rows=1)
    assert said.startswith(f"{empty}: cannot be converted to verl's schema: Cannot write struct type")


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
        (
            {"columns": {**COLUMNS, "prompt": "list"}, "data_source": "x"},
            "column list: is of type list<item: int64>, n",
        ),
    ],
)
def test_wrong_columns_are_rejected(raw: Path, root: Path, options: dict[str, Any], said: str) -> None:
    rows = [{**row, "list": [index]} for index, row in enumerate(QUESTIONS)]
    assert said in refused(root, files={"train": [lines(raw / "a.jsonl", rows)]}, val_rows=1, **options)
