"""What was in a file is in the dataset, where verl reads it, or a finding names what cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from staging_datasets import COLUMNS, asked, lines, manifest, read, refused, rl_row, sft_row, table
from staging_tools import manifest_json

from argus.checks.dataset import SFT


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
    asked(root, workload=SFT, files={"train": [lines(raw / "a.jsonl", rows)]})
    assert manifest(root)["report"] == [
        "train: has the same messages as an earlier row: 1 row, counted from 0: 2 (as 0)"
    ]
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
    asked(root, workload=SFT, files={"train": [texts]})
    assert read(root)[1]["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"town": "Oslo"}'


def test_columns_bring_tools_and_media_along(raw: Path, root: Path) -> None:
    image = {"image": "/private/a.png"}
    rows = [
        {"question": "<image> What is it?", "answer": "a cat", "images": [image], "tools": [tool(a="text")], "more": 1},
        {"question": "Who are you?", "answer": "I", "tools": [tool(a="text")]},
    ]
    file = lines(raw / "a.jsonl", rows)
    asked(root, workload=SFT, files={"train": [file]}, columns={"prompt": "question", "response": "answer"})
    # verl takes the number of images of each row.
    assert [row["images"] for row in read(root)] == [[image], []]
    assert [row["tools"] for row in read(root)] == [[tool(a="text")]] * 2
    assert manifest(root)["report"] == []
    asked(root, "rl", files={"train": [file]}, columns={**COLUMNS, "extra": ["images"]}, data_source="x", val_rows=1)
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
        asked(root, str(number), files=files)
        report = manifest_json(root / f"datasets/{number}")["report"]
        assert [said in text for text in report if "same" not in text] == [True] * (not images)


def test_numbers_and_texts_become_text_where_text_is_read(raw: Path, root: Path) -> None:
    answers = [42, "x", 1.5, True, 7.0, None]
    rows = [{"question": str(number), "answer": answer, "n": [answer]} for number, answer in enumerate(answers[:5])]
    file = lines(raw / "a.jsonl", rows)
    asked(root, files={"train": [file], "val": [file]}, columns=COLUMNS, data_source="x")
    assert [row["reward_model"]["ground_truth"] for row in read(root)] == ["42", "x", "1.5", "true", "7.0"]
    said = refused(
        root, name="n", files={"train": [file], "val": [file]}, columns={**COLUMNS, "extra": ["n"]}, data_source="x"
    )
    assert "n[]: row 1 of a.jsonl has text, row 0 of a.jsonl a number" in said


TURNS = [("system", "s"), ("human", "Hello"), ("gpt", "Hi"), ("human", "Bye"), ("gpt", "Bye!")]
ROLES = {"human": "user", "gpt": "assistant"}
EXPECTED = [{"role": ROLES.get(role, role), "content": text} for role, text in TURNS]
FORMS = {
    "sharegpt": {"conversations": [{"from": role, "value": text} for role, text in TURNS], "id": "1"},
    "sharegpt with system": {
        "conversations": [{"from": role, "value": text} for role, text in TURNS[1:]],
        "system": "s",
    },
    "alpaca": {"instruction": "Bye", "input": "", "output": "Bye!", "system": "s", "history": [["Hello", "Hi"]]},
}


@pytest.mark.parametrize("kind", [lines, table])
@pytest.mark.parametrize("form", FORMS)
def test_other_forms_of_conversations(raw: Path, root: Path, form: str, kind: Any) -> None:
    file = kind(raw / f"a.{'jsonl' if kind is lines else 'parquet'}", [FORMS[form]])
    asked(root, workload=SFT, files={"train": [file]})
    (row,) = read(root)
    assert row == {"messages": EXPECTED, **({"id": "1"} if "id" in FORMS[form] else {})}


def test_sharegpt_as_a_prompt_and_under_another_name(raw: Path, root: Path) -> None:
    file = lines(raw / "a.jsonl", [{"chat": FORMS["sharegpt"]["conversations"][:2], "answer": 1}] * 2)
    columns = {"prompt": "chat", "ground_truth": "answer"}
    asked(root, files={"train": [file]}, columns=columns, data_source="x", val_rows=1)
    assert read(root)[0]["prompt"] == EXPECTED[:2]
    file = lines(raw / "b.jsonl", [{"chat": FORMS["sharegpt"]["conversations"]}])
    asked(root, "sft", workload=SFT, files={"train": [file]}, columns={"messages": "chat"})
    assert read(root, name="sft")[0]["messages"] == EXPECTED
