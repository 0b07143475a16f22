from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow
import pytest
from checked_job import LFS, facts, found, rows_with, version, write
from pyarrow import parquet

from argus.staging.tiny import rl_rows, sft_rows


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"prompt": "How many?"}, "column prompt of type string"),
        ({"reward_model": {"style": "rule"}}, "has a column reward_model of type struct<style: string>"),
        ({"extra_info": "{}"}, "has a column extra_info of type string, where verl reads a mapping"),
    ],
)
def test_columns_of_other_types(root: Path, changes: dict[str, Any], text: str) -> None:
    write(root, rows_with(lambda row: row.update(changes)))
    ((key, what, severity),) = found(root)
    assert (key, severity, text in what) == ("dataset", "error", True)


def test_files_without_data(root: Path) -> None:
    file = root / "datasets/rl/val.parquet"
    parquet.write_table(parquet.read_schema(file).empty_table(), file)
    assert found(root) == [("dataset", "/private/datasets/rl/val.parquet has no rows", "error")]
    file.write_text(LFS)
    assert found(root) == [("dataset", "/private/datasets/rl/val.parquet is a Git LFS pointer, not the file", "error")]
    file.unlink()
    assert found(root) == [("dataset", "/private/datasets/rl/val.parquet does not exist", "error")]


USER = {"role": "user", "content": "x"}


@pytest.mark.parametrize(
    ("name", "messages", "what", "severities"),
    [
        ("rl", [], "has no messages", ["error"]),
        ("rl", [{"role": None, "content": "x"}], "has a message without a role", ["error"]),
        ("rl", [{"role": "user", "content": ""}], "has an empty user or assistant message (user)", ["error"]),
        ("rl", [{"role": "human", "content": "x"}], "has a role that is none of ", ["warning"]),
        ("sft", [USER], "has no assistant", ["error"]),
        ("sft", [USER, {"role": "assistant", "content": ""}], "has ", ["error", "error"]),
        ("sft", [{"role": "system", "content": ""}, {"role": "assistant", "content": "x"}], "has an", ["warning"]),
    ],
)
def test_messages(root: Path, name: str, messages: list[dict[str, Any]], what: str, severities: list[str]) -> None:
    rows = (rl_rows if name == "rl" else sft_rows)()["train"]
    rows[1]["prompt" if name == "rl" else "messages"] = messages
    write(root, rows, name=name)
    reported = found(root, workload="sft" if name == "sft" else "grpo")
    assert [severity for _key, _what, severity in reported] == severities
    assert all(f"/private/datasets/{name}/train.parquet, row 1: {what}" in text for _key, text, _severity in reported)


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


def test_data_of_the_other_kind(root: Path) -> None:
    files = {split: f"{root}/datasets/%s/{split}.parquet" for split in ("train", "val")}
    to_sft = {f"data.{split}_files": file % "rl" for split, file in files.items()}
    key, what, severity = found(root, workload="sft", settings=to_sft)[0]
    assert (key, severity) == ("dataset", "error") and "not for sft" in what
    to_grpo = {f"data.{split}_files": file % "sft" for split, file in files.items()}
    key, what, severity = found(root, settings=to_grpo)[0]
    assert (key, severity) == ("dataset", "error") and "not for ppo and grpo" in what


def test_columns_of_other_names(root: Path) -> None:
    write(root, [{"question": "1", "answer": "2"}] * 8)
    text = "/private/datasets/rl/train.parquet has no column prompt; it has: question, answer"
    assert found(root) == [("dataset", text, "error")]
    write(root, [{"chat" if key == "prompt" else key: row[key] for key in row} for row in rl_rows()["train"]])
    write(
        root, [{"chat" if key == "prompt" else key: row[key] for key in row} for row in rl_rows()["val"]], split="val"
    )
    assert found(root, settings={"data.prompt_key": "chat"}) == []


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


def test_a_ground_truth_that_is_null(root: Path) -> None:
    rows = rl_rows()["train"]
    rows[3]["reward_model"]["ground_truth"] = None
    write(root, rows)
    text = "/private/datasets/rl/train.parquet, row 3: has no reward_model.ground_truth"
    assert found(root, reward_file=None) == [("dataset", text, "error")]
    assert found(root) == []


def test_a_key_that_verl_does_not_read(root: Path) -> None:
    text = "data.reward_fn_key=source has no effect: since verl 0.9 the column is always data_source"
    assert set(found(root, settings={"data.reward_fn_key": "source"})) == {("dataset", text, "warning")}


def test_a_data_source_without_a_reward(root: Path) -> None:
    write(root, rows_with(lambda row: row.update(data_source="mine")))
    assert found(root) == []
    text = "/private/datasets/rl/train.parquet, row 0: verl has no reward function for data_source 'mine'"
    assert found(root, reward_file=None) == [("dataset", text, "error")]
    for source in ("openai/gsm8k", "math", "aime2024"):
        write(root, rows_with(lambda row, source=source: row.update(data_source=source)))
        assert found(root, reward_file=None) == []


def test_a_tool_call_has_no_content(root: Path) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"name": "add"}]}
    write(root, [{"messages": [{"role": "user", "content": "x", "tool_calls": None}, call]}] * 8, name="sft")
    assert found(root, workload="sft") == []


def test_less_than_a_batch(root: Path) -> None:
    ((key, what, severity),) = found(root, settings={"data.train_batch_size": 129})
    assert (key, severity, "has 128 rows" in what) == ("dataset", "error", True)
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
    reported = facts(root, settings={"data.train_files": ["hdfs://a/b.parquet", *files]})
    assert "train_rows" not in reported
    assert "steps" not in reported


def test_a_dataset_class_of_the_user(root: Path) -> None:
    write(root, [{"question": "1"}] * 4)
    assert found(root, settings={"data.custom_cls.path": "x.py"}) == []


def test_files_of_other_formats(root: Path) -> None:
    """verl reads JSON lines for RL; their rows are not counted."""
    (root / "datasets/rl/train.jsonl").write_text("{}\n")
    settings = {"data.train_files": f"{root}/datasets/rl/train.jsonl"}
    assert found(root, settings=settings) == []
    assert "train_rows" not in facts(root, settings=settings)


@pytest.mark.parametrize("kind", [pyarrow.large_list, pyarrow.list_, lambda item: pyarrow.list_(item, 1)])
def test_all_kinds_of_lists(root: Path, kind: Any) -> None:
    message = pyarrow.struct([("role", pyarrow.string()), ("content", pyarrow.string())])
    rows = rl_rows()["train"]
    for row in rows:
        row["prompt"] = row["prompt"][-1:]
    plain = pyarrow.Table.from_pylist(rows)
    prompts = pyarrow.array([row["prompt"] for row in rows], type=kind(message))
    file = root / "datasets/rl/train.parquet"
    parquet.write_table(plain.set_column(plain.schema.get_field_index("prompt"), "prompt", prompts), file)
    assert found(root) == []


@pytest.mark.parametrize("changes", [{"config": None}, {"settings": {"data.val_files": None}}])
def test_sft_needs_no_data_for_validation(root: Path, changes: dict[str, Any]) -> None:
    (root / "datasets/sft/val.parquet").unlink()
    assert [one for one in found(root, workload="sft", **changes) if one[0] == "dataset"] == []


@pytest.mark.parametrize(
    ("images", "file", "expected"),
    [
        ([{"bytes": b"x"}], "", [("dataset", "error")]),
        ([{"bytes": b"x"}], "preprocessor_config.json", []),
        ([], "", []),
        (None, "", []),
    ],
)
def test_images_for_a_model_that_reads_text(root: Path, images: Any, file: str, expected: Any) -> None:
    version(root, "0.9.1")
    if file:
        (root / "common/models/tiny" / file).write_text("{}")
    write(root, rows_with(lambda row: row.update(images=images)))
    assert [(key, severity) for key, _what, severity in found(root)] == expected
