from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.staging.tiny import rl_rows, sft_rows
from checked_job import LFS, facts, found, rows_with, version, write
from pyarrow import parquet


def test_no_file(root: Path) -> None:
    (root / "datasets/rl/val.parquet").unlink()
    assert found(root) == [("dataset", "/private/datasets/rl/val.parquet does not exist", "error")]


def test_a_file_that_is_cut_off(root: Path) -> None:
    file = root / "datasets/rl/train.parquet"
    file.write_bytes(file.read_bytes()[:-100])
    ((where, what, severity),) = found(root)
    assert (where, severity) == ("dataset", "error")
    assert what.startswith("/private/datasets/rl/train.parquet cannot be read as Parquet: Parquet magic bytes")
    file.write_bytes(b"")
    assert "cannot be read as Parquet: Parquet file size is 0 bytes" in found(root)[0][1]


def test_a_file_that_is_damaged(root: Path) -> None:
    file = root / "datasets/rl/train.parquet"
    content = file.read_bytes()
    file.write_bytes(content[:4] + b"\xff" * 2000 + content[2004:])
    assert found(root)[0][1].startswith("/private/datasets/rl/train.parquet is corrupted: ")


def test_a_pointer_in_place_of_data(root: Path) -> None:
    (root / "datasets/rl/train.parquet").write_text(LFS)
    text = "/private/datasets/rl/train.parquet is a Git LFS pointer, not the file"
    assert found(root) == [("dataset", text, "error")]


def test_no_rows(root: Path) -> None:
    schema = parquet.read_schema(root / "datasets/rl/train.parquet")
    parquet.write_table(schema.empty_table(), root / "datasets/rl/val.parquet")
    assert found(root) == [("dataset", "/private/datasets/rl/val.parquet has no rows", "error")]


def test_data_of_the_other_kind(root: Path) -> None:
    files = {split: f"{root}/datasets/%s/{split}.parquet" for split in ("train", "val")}
    to_sft = {f"data.{split}_files": file % "rl" for split, file in files.items()}
    assert found(root, workload="sft", settings=to_sft)[0] == (
        "dataset",
        "/private/datasets/rl/train.parquet is a dataset for ppo and grpo (prompt, reward_model), not for sft: it has "
        "no column messages",
        "error",
    )
    to_grpo = {f"data.{split}_files": file % "sft" for split, file in files.items()}
    assert found(root, settings=to_grpo)[0] == (
        "dataset",
        "/private/datasets/sft/train.parquet is a dataset for sft (messages), not for grpo: it has no column prompt",
        "error",
    )


def test_columns_of_other_names(root: Path) -> None:
    write(root, [{"question": "1", "answer": "2"}] * 8)
    text = "/private/datasets/rl/train.parquet has no column prompt; its columns are question, answer"
    assert found(root) == [("dataset", text, "error")]
    write(root, [{"chat" if key == "prompt" else key: row[key] for key in row} for row in rl_rows()["train"]])
    write(
        root, [{"chat" if key == "prompt" else key: row[key] for key in row} for row in rl_rows()["val"]], split="val"
    )
    assert found(root, settings={"data.prompt_key": "chat"}) == []


def test_prompts_that_are_text(root: Path) -> None:
    write(root, rows_with(lambda row: row.update(prompt="How many?")))
    text = (
        "/private/datasets/rl/train.parquet: column prompt is of type string, but verl reads a list of {role, content}"
    )
    assert found(root) == [("dataset", text, "error")]


@pytest.mark.parametrize("name", ["data_source", "reward_model"])
def test_what_reward_managers_read(root: Path, name: str) -> None:
    write(root, rows_with(lambda row: row.pop(name)))
    ((where, what, severity),) = found(root)
    assert (where, severity) == ("dataset", "error")
    assert what.startswith(
        f"/private/datasets/rl/train.parquet has no column {name}, which verl's reward managers read;"
    )
    # Other rewards read what they like.
    assert found(root, settings={"reward.reward_manager.source": "importlib"}) == []
    assert found(root, reward_file=None, settings={"reward.reward_model.enable": True}) == []


def test_no_ground_truth(root: Path) -> None:
    write(root, rows_with(lambda row: row.update(reward_model={"style": "rule"})))
    text = "/private/datasets/rl/train.parquet: column reward_model (struct<style: string>) has no field ground_truth"
    assert found(root) == [("dataset", text, "error")]


def test_a_ground_truth_that_is_null(root: Path) -> None:
    rows = rl_rows()["train"]
    rows[3]["reward_model"]["ground_truth"] = None
    write(root, rows)
    text = "/private/datasets/rl/train.parquet, row 3: ground_truth is null"
    assert found(root, reward_file=None) == [("dataset", text, "error")]
    assert found(root) == []


def test_a_key_that_verl_does_not_read(root: Path) -> None:
    text = "data.reward_fn_key=source has no effect: since verl 0.9 the column is always data_source"
    assert set(found(root, settings={"data.reward_fn_key": "source"})) == {("dataset", text, "warning")}


def test_a_key_that_older_releases_read(root: Path) -> None:
    version(root, "0.8.0")
    text = (
        "/private/datasets/rl/train.parquet has no column source, which verl's reward managers read; its columns are "
    )
    settings = {"data.reward_fn_key": "source"}
    assert found(root, settings=settings)[0][1].startswith(text)
    for split, rows in rl_rows().items():
        write(root, [{"source" if key == "data_source" else key: row[key] for key in row} for row in rows], split=split)
    assert found(root, reward_file=None, settings=settings) == []


def test_extra_info_that_is_text(root: Path) -> None:
    write(root, rows_with(lambda row: row.update(extra_info="{}")))
    text = "/private/datasets/rl/train.parquet: column extra_info is of type string, but verl reads a mapping"
    assert found(root) == [("dataset", text, "error")]


def test_a_data_source_without_a_reward(root: Path) -> None:
    write(root, rows_with(lambda row: row.update(data_source="mine")))
    assert found(root) == []
    text = "/private/datasets/rl/train.parquet, row 0: verl has no reward function for data_source 'mine'"
    assert found(root, reward_file=None) == [("dataset", text, "error")]
    for source in ("openai/gsm8k", "math", "aime2024"):
        write(root, rows_with(lambda row, source=source: row.update(data_source=source)))
        assert found(root, reward_file=None) == []


@pytest.mark.parametrize(
    ("messages", "what", "severity"),
    [
        ([], "there are no messages", "error"),
        ([{"role": None, "content": "x"}], "a message has no role", "error"),
        ([{"role": "user", "content": ""}], "a message from the user is empty", "error"),
        (
            [{"role": "human", "content": "x"}],
            "chat templates do not know the role 'human' (known: system, developer, user, assistant, tool)",
            "warning",
        ),
    ],
)
def test_messages_of_rl(root: Path, messages: list[dict[str, Any]], what: str, severity: str) -> None:
    rows = rl_rows()["train"]
    rows[1]["prompt"] = rows[5]["prompt"] = messages
    write(root, rows)
    text = f"/private/datasets/rl/train.parquet, row 1: {what} (and 1 more of the first 64 rows)"
    assert found(root) == [("dataset", text, severity)]


def test_messages_of_sft(root: Path) -> None:
    rows = sft_rows()["train"]
    rows[2]["messages"] = [{"role": "user", "content": "x"}]
    write(root, rows, name="sft")
    text = (
        "/private/datasets/sft/train.parquet, row 2: no message is from the assistant, so there is nothing to learn "
        "(roles: user)"
    )
    assert found(root, workload="sft") == [("dataset", text, "error")]


def test_a_tool_call_has_no_content(root: Path) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"name": "add"}]}
    write(root, [{"messages": [{"role": "user", "content": "x", "tool_calls": None}, call]}] * 8, name="sft")
    assert found(root, workload="sft") == []


def test_less_than_a_batch(root: Path) -> None:
    text = (
        "/private/datasets/rl/train.parquet has 128 rows, but data.train_batch_size is 129: the job would run no step"
    )
    assert found(root, settings={"data.train_batch_size": 129}) == [("dataset", text, "error")]
    assert facts(root, settings={"data.train_batch_size": 129, "trainer.total_training_steps": 4})["steps"] == 0
    assert found(root, settings={"data.train_batch_size": 128}) == []
    assert found(root, settings={"data.train_max_samples": 7})[0][1].startswith(
        "/private/datasets/rl/train.parquet has 7 rows, but data.train_batch_size is 8"
    )


def test_less_than_a_batch_for_validation(root: Path) -> None:
    text = "/private/datasets/sft/val.parquet has 32 rows, but data.train_batch_size is 64: val/loss would be nan"
    assert found(root, workload="sft", settings={"data.train_batch_size": 64}) == [("dataset", text, "warning")]
    assert found(root, workload="sft", settings={"data.train_batch_size": 64, "data.val_files": None}) == []


def test_several_files(root: Path) -> None:
    files = [f"{root}/datasets/rl/{split}.parquet" for split in ("train", "val")]
    assert facts(root, settings={"data.train_files": files})["train_rows"] == 144
    said = facts(root, settings={"data.train_files": ["hdfs://a/b.parquet", *files]})
    assert "train_rows" not in said
    assert "steps" not in said


def test_a_dataset_class_of_the_user(root: Path) -> None:
    write(root, [{"question": "1"}] * 4)
    assert found(root, settings={"data.custom_cls.path": "x.py"}) == []
