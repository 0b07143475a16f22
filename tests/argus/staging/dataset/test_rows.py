"""From files to rows in verl's schema, where verl reads them, or a finding that names what cannot be read."""

from __future__ import annotations

import csv
import gzip
import json
import os
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet
from staging_datasets import (
    COLUMNS,
    MAPPED,
    QUESTIONS,
    lines,
    manifest,
    mapped,
    read,
    refused,
    rl_row,
    sft_row,
    stage,
    table,
)
from staging_store import manifest_json

from argus.checks.dataset import SFT
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
    stage(root, files={"train": [str(path)]}, val_rows=1)
    assert [*read(root, "val"), *read(root)] == rows


def test_csv_is_text_and_may_have_lines_in_its_values(raw: Path, root: Path) -> None:
    for ending in ("csv", "csv.gz"):
        path = raw / f"train.{ending}"
        with gzip.open(path, "wt", newline="") if ending.endswith("gz") else path.open("w", newline="") as file:
            csv.writer(file).writerows([["question", "answer"], ['How "many"?\nSay, please.', "007"], ["b", "1,000"]])
        stage(root, name=ending, files={"train": [str(path)]}, columns=COLUMNS, data_source="x", val_rows=1)
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
    stage(root, files={"train": [lines(raw / "train.jsonl", rows)]}, val_rows=2)
    stage(root, "again", files={"train": [str(raw / "train.jsonl")]}, val_rows=2)
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
        ("a.parquet", b"version https://git-lfs.github.com/spec/v1\noid", "is a Git LFS pointer"),
        ("a.parquet.gz", b"", "has an unknown format"),
    ],
)
def test_files_that_cannot_be_read_are_named(raw: Path, root: Path, name: str, content: bytes, said: str) -> None:
    (raw / name).write_bytes(content)
    message = refused(root, files={"train": [str(raw / name)]}, val_rows=1)
    assert message.startswith(f"{raw / name}: ")
    assert said in message


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
    stage(root, files={"train": [lines(raw / "a.jsonl", rows)]}, val_rows=1, **options)
    assert read(root)[0]["prompt"] == [
        *(said("system", "Be brief."), said("user", "Hi 1"), said("assistant", "b"), said("user", "c\nNow."))
    ]
    assert read(root)[0]["reward_model"] == {"style": "rule", "ground_truth": "7"}
    file = lines(raw / "b.jsonl", [{**row, "level": "1"} for row in QUESTIONS])
    columns = {"prompt": "question", "response": "answer", "extra": ["level"]}
    sft = {"workload": SFT, "columns": columns, "system_prompt": "s", "instruction": "!", "val_rows": 1}
    stage(root, "sft", files={"train": [file]}, **sft)
    messages = [said("system", "s"), said("user", "What is 1 + 1? !"), said("assistant", "It is\n#### 2")]
    assert read(root, name="sft")[0] == {"messages": messages, "level": "1"}


def test_the_ground_truth_is_the_last_match_without_what_is_to_be_removed(raw: Path, root: Path) -> None:
    answers = ["3 apples, 4 pears: 7", "1,000 or 12", "0 4711"]
    file = lines(raw / "a.jsonl", [{"question": f"q{index}", "answer": answer} for index, answer in enumerate(answers)])
    options = {"columns": COLUMNS, "data_source": "x", "ground_truth_pattern": r"([0-9,]+)", "val_rows": 1}
    for name, removed, truths in (("all", "", ["7", "12", "4711"]), ("some", "14", ["7", "2", "7"])):
        stage(root, name, files={"train": [file]}, ground_truth_remove=removed, **options)
        rows = [*read(root, "val", name), *read(root, name=name)]
        assert [row["reward_model"]["ground_truth"] for row in rows] == truths


def test_rows_that_the_pattern_does_not_match_are_named_with_their_values(raw: Path, root: Path) -> None:
    rows = [dict(row) for row in QUESTIONS]
    rows[3]["answer"], rows[7]["answer"], rows[8]["answer"] = "four", None, ""
    said = refused(root, files={"train": [lines(raw / "a.jsonl", rows)]}, val_rows=2, **MAPPED)
    assert "ground_truth_pattern does not match: 2 rows, counted from 0: 3 (four), 8" in said
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
        assert said.startswith("column question: has content of type list<")


def test_an_error_of_pyarrow_names_the_file(raw: Path, root: Path) -> None:
    file = raw / "a.parquet"
    rows = pyarrow.table({"question": pyarrow.array([b"\xff", b"b"]), "answer": ["a", "b"]})
    parquet.write_table(rows, file)
    options = {"columns": COLUMNS, "data_source": "x", "val_rows": 1}
    assert "column question: is of type binary" in refused(root, files={"train": [str(file)]}, **options)
    empty = lines(raw / "b.jsonl", [rl_row(number, extra_info={"more": {}}) for number in range(2)])
    said = refused(root, files={"train": [empty]}, val_rows=1)
    assert said.startswith(f"{empty}: cannot be converted to verl's schema: Cannot write struct type")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"instruction": "x"}, "instruction: apply to columns, but columns is not set"),
        ({"columns": {"prompt": "question"}}, "columns: has no ground_truth"),
        ({"columns": COLUMNS}, "columns: has no data_source. Set data_source"),
        ({"columns": {**COLUMNS, "data_source": "a"}, "data_source": "b"}, "has data_source, which is also set as a"),
        ({"columns": {**COLUMNS, "extra": ["index"]}, "data_source": "b"}, "has index in extra"),
        ({"columns": {"response": "a"}}, "columns: has no response for rl"),
        ({"workload": SFT, "columns": {"messages": "a", "prompt": "b"}}, "needs either messages, or prompt and resp"),
        ({"workload": SFT, "columns": {"prompt": "b"}}, "columns: has no response"),
        ({"workload": SFT, "columns": {"messages": "a"}, "instruction": "b"}, "does not use instruction here"),
        ({"columns": COLUMNS, "data_source": "x", "ground_truth_pattern": "("}, "is not a regular expression"),
        ({"columns": COLUMNS, "data_source": "x", "ground_truth_pattern": "a"}, "ground_truth_pattern: has 0 groups"),
        ({"columns": {**COLUMNS, "prompt": "Question"}, "data_source": "x"}, 'Did you mean "question"?'),
        ({"columns": {**COLUMNS, "prompt": "list"}, "data_source": "x"}, "column list: is of type list<item: int64>"),
    ],
)
def test_wrong_columns_are_rejected(raw: Path, root: Path, options: dict[str, Any], said: str) -> None:
    rows = [{**row, "list": [index]} for index, row in enumerate(QUESTIONS)]
    assert said in refused(root, files={"train": [lines(raw / "a.jsonl", rows)]}, val_rows=1, **options)


def call(arguments: object) -> list[dict[str, Any]]:
    """A conversation with the call of a tool."""
    function = {"name": "weather", "arguments": arguments}
    return [
        {"role": "user", "content": "How is the weather?"},
        {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]},
    ]


def tool(**properties: object) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": {"properties": properties}}}


def test_calls_of_tools_stay_and_make_rows_different(raw: Path, root: Path) -> None:
    rows = [{"messages": call({"city": city}), "tools": [tool(city="text")]} for city in ("Rome", "Oslo", "Rome")]
    stage(root, workload=SFT, files={"train": [lines(raw / "a.jsonl", rows)]})
    (report,) = manifest(root)["report"]
    assert report.endswith(": 1 row, counted from 0: 2 (as 0)")
    first = read(root)[0]
    assert first["messages"][1] == rows[0]["messages"][1] and first["tools"] == rows[0]["tools"]
    assert not (root / "datasets/data/val.parquet").exists()


@pytest.mark.parametrize(("kind", "ending", "row"), [(lines, "jsonl", "row 0 of "), (table, "parquet", "")])
def test_other_keys_of_arguments_and_tools_are_named(raw: Path, root: Path, kind: Any, ending: str, row: str) -> None:
    """Parquet gives all of them all keys, with null, which a chat template renders."""
    first = kind(raw / f"1.{ending}", [{"messages": call({"city": "Rome"})}])
    second = kind(raw / f"2.{ending}", [{"messages": call({"town": "Oslo"})}])
    said = refused(root, workload=SFT, files={"train": [first, second]})
    place = "messages[].tool_calls[].function.arguments"
    assert f"{place}: {row}2.{ending} has the keys town, {row}1.{ending} the keys city" in said
    rows = [{**sft_row(number), "tools": [tool(**{name: "text"})]} for number, name in enumerate(("a", "b"))]
    said = refused(root, workload=SFT, files={"train": [lines(raw / "3.jsonl", rows)]})
    assert "tools[].function.parameters.properties: row 1 of 3.jsonl has the keys b, row 0 of 3.jsonl the" in said
    said = refused(root, workload=SFT, files={"train": [lines(raw / "5.jsonl", [{**sft_row(1), "tools": "[]"}])]})
    assert "has a column tools of type string" in said
    # Arguments as JSON text have one type.
    texts = lines(raw / "4.jsonl", [{"messages": call('{"city": "Rome"}')}, {"messages": call('{"town": "Oslo"}')}])
    stage(root, workload=SFT, files={"train": [texts]})
    assert read(root)[1]["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"town": "Oslo"}'


def test_columns_bring_tools_and_media_along(raw: Path, root: Path) -> None:
    image = {"image": "/private/a.png"}
    rows = [
        {"question": "<image> What is it?", "answer": "a cat", "images": [image], "tools": [tool(a="text")], "more": 1},
        {"question": "Who are you?", "answer": "I", "tools": [tool(a="text")]},
    ]
    file = lines(raw / "a.jsonl", rows)
    stage(root, workload=SFT, files={"train": [file]}, columns={"prompt": "question", "response": "answer"})
    # verl takes the number of images of each row.
    assert [row["images"] for row in read(root)] == [[image], []]
    assert [row["tools"] for row in read(root)] == [[tool(a="text")]] * 2
    assert manifest(root)["report"] == []
    stage(root, "rl", files={"train": [file]}, columns={**COLUMNS, "extra": ["images"]}, data_source="x", val_rows=1)
    (row,) = read(root, name="rl")
    assert "images" in row and set(row["extra_info"]) == {"split", "index"}


def test_images_are_as_many_as_their_signs(raw: Path, root: Path) -> None:
    prompt, image = [{"role": "user", "content": "<image>"}], {"image": "a"}
    val = [lines(raw / "b.jsonl", [rl_row(9)])]
    said = "train: has another number of <image> than of images: 1 row, counted from 0: 1 (1 and "
    for number, images in enumerate(([image] * 2, [image], [])):
        rows = [rl_row(0, images=[image], prompt=prompt), rl_row(1, images=images, prompt=prompt)]
        files = {"train": [lines(raw / f"{number}.jsonl", rows)], "val": val}
        if len(images) == 2:
            assert said in refused(root, name="other", files=files)
            continue
        stage(root, str(number), files=files)
        report = manifest_json(root / f"datasets/{number}")["report"]
        assert [said in text for text in report if "same" not in text] == [True] * (not images)


def test_numbers_and_texts_become_text_where_text_is_read(raw: Path, root: Path) -> None:
    answers = [42, "x", 1.5, True, 7.0, None]
    rows = [{"question": str(number), "answer": answer, "n": [answer]} for number, answer in enumerate(answers[:5])]
    file = lines(raw / "a.jsonl", rows)
    stage(root, files={"train": [file], "val": [file]}, columns=COLUMNS, data_source="x")
    assert [row["reward_model"]["ground_truth"] for row in read(root)] == ["42", "x", "1.5", "true", "7.0"]
    columns = {**COLUMNS, "extra": ["n"]}
    said = refused(root, name="n", files={"train": [file]}, columns=columns, data_source="x", val_rows=1)
    assert "n[]: row 1 of a.jsonl has text, row 0 of a.jsonl a number" in said


TURNS = [("system", "s"), ("human", "Hello"), ("gpt", "Hi"), ("human", "Bye"), ("gpt", "Bye!")]
ROLES = {"human": "user", "gpt": "assistant"}
EXPECTED = [{"role": ROLES.get(role, role), "content": text} for role, text in TURNS]
SAID = [{"from": role, "value": text} for role, text in TURNS]
FORMS = {
    "sharegpt": {"conversations": SAID, "id": "1"},
    "sharegpt with system": {"conversations": SAID[1:], "system": "s"},
    "alpaca": {"instruction": "Bye", "input": "", "output": "Bye!", "system": "s", "history": [["Hello", "Hi"]]},
}


@pytest.mark.parametrize("kind", [lines, table])
@pytest.mark.parametrize("form", FORMS)
def test_other_forms_of_conversations(raw: Path, root: Path, form: str, kind: Any) -> None:
    file = kind(raw / f"a.{'jsonl' if kind is lines else 'parquet'}", [FORMS[form]])
    stage(root, workload=SFT, files={"train": [file]})
    (row,) = read(root)
    assert row == {"messages": EXPECTED, **({"id": "1"} if "id" in FORMS[form] else {})}


def test_sharegpt_as_a_prompt_and_under_another_name(raw: Path, root: Path) -> None:
    file = lines(raw / "a.jsonl", [{"chat": SAID[:2], "answer": 1}] * 2)
    columns = {"prompt": "chat", "ground_truth": "answer"}
    stage(root, files={"train": [file]}, columns=columns, data_source="x", val_rows=1)
    assert read(root)[0]["prompt"] == EXPECTED[:2]
    file = lines(raw / "b.jsonl", [{"chat": SAID}])
    stage(root, "sft", workload=SFT, files={"train": [file]}, columns={"messages": "chat"})
    assert read(root, name="sft")[0]["messages"] == EXPECTED
