"""Conversion of columns to verl's schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet
from staging_datasets import COLUMNS, MAPPED, QUESTIONS, asked, lines, mapped, read, refused, rl_row

from argus.checks.dataset import SFT


def test_patterns_are_taken_in_the_order_of_names_and_files_may_lack_columns(raw: Path, root: Path) -> None:
    for name, number in (("part-2.jsonl", 2), ("part-1.jsonl", 1), ("part-3.jsonl", 3)):
        lines(raw / name, [rl_row(number, **({"level": "hard"} if number == 2 else {}))])
    (raw / ".part-0.jsonl").write_text("not read")
    asked(root, files={"train": [f"{raw}/part-*.jsonl", str(raw / "part-1.jsonl")]}, val_rows=1)
    rows = [*read(root, "val"), *read(root)]
    assert [(row["extra_info"]["index"], row["level"]) for row in rows] == [(1, None), (2, "hard"), (3, None)]


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


def test_conversations_of_a_question_and_an_answer(raw: Path, root: Path) -> None:
    file = lines(raw / "a.jsonl", [{**row, "level": "1"} for row in QUESTIONS])
    columns = {"prompt": "question", "response": "answer", "extra": ["level"]}
    asked(root, workload=SFT, files={"train": [file]}, columns=columns, system_prompt="s", instruction="!", val_rows=1)
    assert read(root)[0] == {
        "messages": [
            {"role": "system", "content": "s"},
            {"role": "user", "content": "What is 1 + 1? !"},
            {"role": "assistant", "content": "It is\n#### 2"},
        ],
        "level": "1",
    }


def test_the_ground_truth_is_the_last_match_without_what_is_to_be_removed(raw: Path, root: Path) -> None:
    answers = ["3 apples, 4 pears: 7", "1,000 or 12", "0 4711"]
    rows = [{"question": f"q{index}", "answer": answer} for index, answer in enumerate(answers)]
    options = {"columns": COLUMNS, "data_source": "x", "ground_truth_pattern": r"([0-9,]+)", "val_rows": 1}
    asked(root, files={"train": [lines(raw / "a.jsonl", rows)]}, **options)
    assert [row["reward_model"]["ground_truth"] for row in [*read(root, "val"), *read(root)]] == ["7", "12", "4711"]
    file = str(raw / "a.jsonl")
    asked(root, name="removed", files={"train": [file]}, ground_truth_remove="14", **options)
    rows = [*read(root, "val", "removed"), *read(root, name="removed")]
    assert [row["reward_model"]["ground_truth"] for row in rows] == ["7", "2", "7"]


def test_rows_that_the_pattern_does_not_match_are_named_with_their_values(raw: Path, root: Path) -> None:
    rows = [dict(row) for row in QUESTIONS]
    rows[3]["answer"], rows[7]["answer"], rows[8]["answer"] = "four", None, ""
    said = refused(root, files={"train": [lines(raw / "a.jsonl", rows)]}, val_rows=2, **MAPPED)
    assert (
        "train: has a ground truth that ground_truth_pattern does not match: 2 rows, counted from 0: 3 (four), 8"
        in said
    )
    assert "train: has no reward_model.ground_truth: 2 rows, counted from 0: 7 (None), 8 ('')" in said


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
