from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow
import pytest
from staging_datasets import rl_row, sft_row

from argus.checks.dataset import RL, ROLES, SFT
from argus.staging.dataset.checks import SHOWN_ROWS, Checker, schema_problem


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def checked(workload: str, batch: int = 100, **splits: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """The errors and the warnings."""
    checker = Checker(workload)
    for split, rows in splits.items():
        table = pyarrow.RecordBatch.from_struct_array(pyarrow.array(rows))
        assert schema_problem(table.schema, workload) is None
        for start in range(0, len(rows), batch):
            part = table.slice(start, batch)
            checker.check(split, part, range(start, start + part.num_rows))
    checker.compare()
    return checker.errors(), checker.warnings()


CALL = said("assistant", None, tool_calls=[{"name": "add", "arguments": "{}"}])
EMPTY = "has an empty user or assistant message"


@pytest.mark.parametrize(
    ("workload", "second", "error", "warning"),
    [
        *(
            (RL, {"prompt": [said("user", text)]}, f"{EMPTY}: 1 row, counted from 0: 1 (user)", "")
            for text in (None, " \n")
        ),
        (
            SFT,
            {"messages": [said("user", ""), said("assistant", "2")]},
            f"{EMPTY}: 1 row, counted from 0: 1 (user)",
            "",
        ),
        (RL, {"prompt": [said("system", ""), said("user", "a"), said("tool", "")]}, "", ": 1 (system)"),
        (SFT, {"messages": [said("user", "a"), CALL, said("tool", "2"), said("assistant", "2")]}, "", ""),
        (SFT, {"messages": [said("user", "a"), {**CALL, "tool_calls": []}, said("assistant", "2")]}, EMPTY, ""),
        (SFT, {"messages": [said("user", "a")]}, "no assistant message", ""),
        (RL, {"prompt": [said("user", "a"), said("assistant", "b")]}, "ends with an assistant message", ""),
        (RL, {"prompt": [said("user", "a"), said("assistant", "b"), said("user", "c")]}, "", ""),
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
    found = checked(workload, train=[row(0), {**row(1), **second}])
    for texts, text in zip(found, (error, warning), strict=True):
        assert len(texts) == bool(text)
        assert all(one.startswith("train: ") and text in one for one in texts)


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_rows_are_counted_across_batches(batch: int) -> None:
    rows = [rl_row(number) for number in (1, 2, 1, 3, 2, 1, 7, 8, 9)]
    rows[6]["prompt"] = [said("human", "a")]
    rows[7]["prompt"] = [said("user", "b"), said(" ", "c"), said("critic", "f")]
    errors, warnings = checked(RL, batch, train=rows)
    assert errors == ["train: has a message without a role: 1 row, counted from 0: 7"]
    assert set(warnings) == {
        f"train: has a role that is none of {', '.join(ROLES)}: 2 rows, counted from 0: 6 (human), 7 (critic)",
        "train: has the same prompt as an earlier row: 3 rows, counted from 0: 2 (as 0), 4 (as 1), 5 (as 0)",
    }
    many = [rl_row(number, data_source="" if number % 2 else "x") for number in range(100)]
    ((text,), _warnings) = checked(RL, batch, train=many)
    assert ": 50 rows, counted from 0: 1 ('')" in text and text.endswith(f"19 ('') and {50 - SHOWN_ROWS} more")


def test_prompts_that_are_there_twice() -> None:
    train = [rl_row(number) for number in range(5)]
    (text,) = checked(RL, train=train, val=[rl_row(9), rl_row(3), rl_row(0, data_source="x")])[1]
    assert text.startswith("val: ") and text.endswith(": 2 rows, counted from 0: 1, 2")

    def row(image: bytes) -> dict[str, Any]:
        return rl_row(0, prompt=[said("user", "<image>")], images=[{"bytes": image, "path": None}])

    # The same words about another image are another prompt.
    assert checked(RL, train=[row(b"\x00\xff1"), row(b"\x00\xff2")]) == ([], [])
    assert len(checked(RL, train=[row(b"\x00\xff1"), row(b"\x00\xff2"), row(b"\x00\xff1")])[1]) == 1


@pytest.mark.parametrize(
    ("row", "workload", "what"),
    [
        (rl_row(0), SFT, "is a dataset for ppo and grpo"),
        (sft_row(0), RL, "is a dataset for sft"),
        (rl_row(0, prompt="text"), RL, "has a column prompt of type string"),
        (rl_row(0, prompt=[{"from": "human", "value": "a"}]), RL, "has a column prompt of type list<"),
        (rl_row(0, prompt=[said("user", 3)]), RL, "has messages with content of type int64"),
        (rl_row(0, data_source=3), RL, "has a column data_source of type int64"),
        (rl_row(0, reward_model="42"), RL, "has a column reward_model of type string"),
        (rl_row(0, extra_info="{}"), RL, "has a column extra_info of type string"),
    ],
)
def test_a_column_of_another_type_is_named_with_it(row: Mapping[str, Any], workload: str, what: str) -> None:
    found = schema_problem(pyarrow.Table.from_pylist([row]).schema, workload)
    assert found is not None and found[0].startswith(what)
