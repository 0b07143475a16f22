from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow
import pytest

from argus.checks.dataset import RL, SFT
from argus.staging.dataset.checks import (
    SHOWN_ROWS,
    Checker,
    schema_problem,
)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def rl_row(number: int = 0, **other: Any) -> dict[str, Any]:
    return {
        "data_source": "openai/gsm8k",
        "prompt": [user(f"What is {number} + 1?")],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": str(number + 1)},
        "extra_info": {"split": "train", "index": number},
        **other,
    }


def sft_row(number: int = 0, *messages: Mapping[str, Any]) -> dict[str, Any]:
    return {"messages": list(messages) or [user(f"What is {number} + 1?"), assistant(str(number + 1))]}


def checked(workload: str, batch: int = 100, **splits: Sequence[Mapping[str, Any]]) -> Checker:
    checker = Checker(workload)
    for split, rows in splits.items():
        table = pyarrow.RecordBatch.from_struct_array(pyarrow.array(rows))
        assert schema_problem(table.schema, workload) is None
        for start in range(0, len(rows), batch):
            part = table.slice(start, batch)
            checker.check(split, part, range(start, start + part.num_rows))
    checker.compare()
    return checker


def errors(workload: str, rows: Sequence[Mapping[str, Any]], batch: int = 100) -> list[str]:
    checker = checked(workload, batch=batch, train=rows)
    assert checker.warnings() == []
    return checker.errors()


def warnings(workload: str, **splits: Sequence[Mapping[str, Any]]) -> list[str]:
    checker = checked(workload, **splits)
    assert checker.errors() == []
    return checker.warnings()


# --- What is an error ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_an_unknown_role_is_a_warning_and_a_missing_one_an_error(batch: int) -> None:
    """As in the check of the gate, see checks.conversation."""
    rows = [rl_row(number) for number in range(8)]
    rows[2]["prompt"] = [{"role": "human", "content": "a"}]
    rows[5]["prompt"] = [user("b"), {"role": None, "content": "c"}]
    rows[6]["prompt"] = [user("d"), {"role": " ", "content": "e"}, {"role": "critic", "content": "f"}]
    checker = checked(RL, batch=batch, train=rows)
    assert checker.errors() == ["train: has a message without a role: 2 rows, counted from 0: 5, 6"]
    assert checker.warnings() == [
        "train: has a role that is none of system, developer, user, assistant, tool: "
        "2 rows, counted from 0: 2 (human), 6 (critic)"
    ]


def test_of_many_rows_the_first_are_shown_and_all_are_counted() -> None:
    rows = [rl_row(number, data_source="" if number % 2 else "x") for number in range(100)]
    (said,) = errors(RL, rows, batch=7)
    assert ": 50 rows, counted from 0: 1 ('')" in said
    assert said.endswith(f"19 ('') and {50 - SHOWN_ROWS} more")


@pytest.mark.parametrize("content", [None, "", " \n\t"])
def test_an_empty_message(content: Any) -> None:
    what = "has an empty user or assistant message: 1 row, counted from 0: 1 (user)"
    assert errors(RL, [rl_row(0), rl_row(1, prompt=[user(content)])]) == [f"train: {what}"]
    assert errors(SFT, [sft_row(0), sft_row(1, user(content), assistant("2"))]) == [f"train: {what}"]


def test_an_empty_system_message_is_a_warning_and_a_tool_message_may_be_empty() -> None:
    system, tool = {"role": "system", "content": ""}, {"role": "tool", "content": ""}
    (said,) = warnings(RL, train=[rl_row(0), rl_row(1, prompt=[system, user("a"), tool])])
    assert said.endswith(": 1 (system)")


def test_a_message_that_calls_a_tool_may_be_empty() -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"name": "add", "arguments": "{}"}]}
    assert errors(SFT, [sft_row(0, user("a"), call, {"role": "tool", "content": "2"}, assistant("2"))]) == []
    empty = [sft_row(0, user("a"), {**call, "tool_calls": []}, assistant("2")), sft_row(1, user("a"), call)]
    assert errors(SFT, empty) == ["train: has an empty user or assistant message: 1 row, counted from 0: 0 (assistant)"]


def test_a_prompt_ends_before_the_answer() -> None:
    (said,) = errors(RL, [rl_row(0), rl_row(1, prompt=[user("a"), assistant("b")])])
    assert "ends with an assistant message" in said and said.endswith(": 1 (assistant)")
    assert errors(RL, [rl_row(prompt=[user("a"), assistant("b"), user("c")])]) == []


@pytest.mark.parametrize(
    ("reward", "said"),
    [(None, "None"), ({"style": "rule", "ground_truth": None}, "None"), ({"style": None, "ground_truth": ""}, "''")],
)
def test_a_row_without_ground_truth(reward: Any, said: str) -> None:
    assert errors(RL, [rl_row(0), rl_row(1, reward_model=reward)]) == [
        f"train: has no reward_model.ground_truth: 1 row, counted from 0: 1 ({said})"
    ]


def test_a_reward_model_needs_no_ground_truth() -> None:
    assert errors(RL, [rl_row(0), rl_row(1, reward_model={"style": "model", "ground_truth": None})]) == []


def test_verls_reward_for_gsm8k_finds_numbers_without_commas_only() -> None:
    truths = ["1,000", "-3.5", "1000", "$5", "seven"]
    rows = [rl_row(number, reward_model={"ground_truth": truth}) for number, truth in enumerate(truths)]
    (said,) = warnings(RL, train=rows)
    assert said.endswith(": 3 rows, counted from 0: 0 (1,000), 3 ($5), 4 (seven)")
    assert len(warnings(RL, train=[rl_row(0, reward_model={"ground_truth": 42})])) == 1
    assert warnings(RL, train=[{**row, "data_source": "x"} for row in rows]) == []


def test_a_conversation_without_an_answer_teaches_nothing() -> None:
    rows = [sft_row(0), sft_row(1, user("a")), sft_row(2, user("a"), assistant("b"))]
    (said,) = errors(SFT, rows)
    assert "no assistant message" in said and said.endswith(": 1 (user)")


# --- Equal rows ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_rows_that_are_there_twice(batch: int) -> None:
    rows = [rl_row(number) for number in (1, 2, 1, 3, 2, 1)]
    checker = checked(RL, batch=batch, train=rows)
    assert checker.errors() == []
    assert checker.warnings() == [
        "train: has the same prompt as an earlier row: 3 rows, counted from 0: 2 (as 0), 4 (as 1), 5 (as 0)"
    ]


def test_validation_prompts_in_train_are_a_warning() -> None:
    train = [rl_row(number) for number in range(5)]
    (said,) = warnings(RL, train=train, val=[rl_row(9), rl_row(3), rl_row(0, data_source="x")])
    assert said.startswith("val: ") and said.endswith(": 2 rows, counted from 0: 1, 2")


def test_the_same_words_about_another_image_are_another_prompt() -> None:
    def row(image: bytes) -> dict[str, Any]:
        return rl_row(prompt=[user("<image>")], images=[{"bytes": image, "path": None}])

    assert warnings(RL, train=[row(b"\x00\xff1"), row(b"\x00\xff2")]) == []
    assert len(warnings(RL, train=[row(b"\x00\xff1"), row(b"\x00\xff2"), row(b"\x00\xff1")])) == 1


# --- Types -----------------------------------------------------------------------------------------------------------


def test_a_dataset_for_another_workload_is_reported_as_such() -> None:
    rl, sft = (pyarrow.Table.from_pylist([row]).schema for row in (rl_row(), sft_row()))
    for schema, workload, said in ((rl, SFT, "is a dataset for ppo and grpo"), (sft, RL, "is a dataset for sft")):
        what, _todo = schema_problem(schema, workload) or ("", "")
        assert what.startswith(said)


@pytest.mark.parametrize(
    ("column", "value", "what"),
    [
        ("prompt", "text", "has a column prompt of type string, where verl reads a list of {role, content}"),
        ("prompt", [{"from": "human", "value": "a"}], "has a column prompt of type list<"),
        ("prompt", [{"role": "user", "content": 3}], "has messages with content of type int64"),
        ("data_source", 3, "has a column data_source of type int64"),
        ("reward_model", "42", "has a column reward_model of type string"),
        ("reward_model", {"style": "rule"}, "has a column reward_model of type struct<style: string>"),
        ("extra_info", "{}", "has a column extra_info of type string, where verl reads a mapping"),
    ],
)
def test_a_column_of_another_type_is_named_with_it(column: str, value: Any, what: str) -> None:
    found = schema_problem(pyarrow.Table.from_pylist([rl_row(**{column: value})]).schema, RL)
    assert found is not None
    assert found[0].startswith(what)
