from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from checked_job import LFS, REWARD_FILE, facts, findings_of, keys, rows_with, version, write
from pyarrow import parquet

from argus.staging.tiny import rl_rows, sft_rows

ERROR, WARNING = [("dataset", "error")], [("dataset", "warning")]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"prompt": "How many?"}, "column prompt of type string"),
        ({"reward_model": {"style": "rule"}}, "has a column reward_model of type struct<style: string>"),
        ({"extra_info": "{}"}, "has a column extra_info of type string"),
        ({"data_source": None}, "has no column data_source"),
        ({"reward_model": None}, "has no column reward_model"),
        ({"data_source": "mine"}, "row 0: verl has no reward function for data_source 'mine'"),
        ({"data_source": "aime2024"}, ""),
    ],
)
def test_columns(root: Path, changes: Mapping[str, Any], problem: str) -> None:
    def change(row: dict[str, Any]) -> None:
        row.update(changes)
        for name in [name for name, value in changes.items() if value is None]:
            del row[name]

    write(root, rows_with(change))
    findings = findings_of(root)
    assert [(key, severity) for key, _text, severity in findings] == (ERROR if problem else [])
    assert all("/private/datasets/rl/train.parquet" in one[1] and problem in one[1] for one in findings)
    # Other rewards read what they like, and take any data source.
    if "column data_source" in problem or "no column reward_model" in problem:
        other_reward = {"reward.reward_manager.source": "importlib"}
        assert keys(root, settings=other_reward) == keys(root, settings={"reward.reward_model.enable": True}) == []
    if "mine" in problem:
        assert keys(root, reward_file=f"{root}/{REWARD_FILE}") == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (None, " does not exist"),
        (lambda _content: LFS.encode(), " is a Git LFS pointer"),
        (lambda content: content[:-100], " cannot be read as Parquet: "),
        (lambda content: content[:4] + b"\xff" * 2000 + content[2004:], " is corrupted: "),
    ],
)
def test_files_that_cannot_be_read(root: Path, change: Callable[[bytes], bytes] | None, problem: str) -> None:
    file = root / "datasets/rl/train.parquet"
    content = file.read_bytes()
    file.unlink()
    if change:
        file.write_bytes(change(content))
    ((_key, text, severity),) = [one for one in findings_of(root) if one[0] == "dataset"]
    assert severity == "error" and text.startswith(f"/private/datasets/rl/train.parquet{problem}")


USER = {"role": "user", "content": "x"}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"name": "add"}]}


@pytest.mark.parametrize(
    ("name", "messages", "problem", "severities"),
    [
        ("rl", [], "has no messages", ["error"]),
        ("rl", [{"role": None, "content": "x"}], "has a message without a role", ["error"]),
        ("rl", [{"role": "user", "content": ""}], "has an empty user or assistant message (user)", ["error"]),
        ("rl", [{"role": "human", "content": "x"}], "has a role that is none of ", ["warning"]),
        ("sft", [USER], "has no assistant", ["error"]),
        ("sft", [USER, {"role": "assistant", "content": ""}], "has ", ["error", "error"]),
        ("sft", [{"role": "system", "content": ""}, {"role": "assistant", "content": "x"}], "has an", ["warning"]),
        ("sft", [USER, CALL], "", []),
    ],
)
def test_messages(root: Path, name: str, messages: list[dict[str, Any]], problem: str, severities: list[str]) -> None:
    rows = (rl_rows if name == "rl" else sft_rows)()["train"]
    rows[1]["prompt" if name == "rl" else "messages"] = messages
    write(root, rows, name=name)
    reported = findings_of(root, workload="sft" if name == "sft" else "grpo")
    assert [severity for _key, _text, severity in reported] == severities
    assert all(f"/private/datasets/{name}/train.parquet, row 1: {problem}" in text for _key, text, _level in reported)


def test_data_of_the_other_kind_or_with_other_names(root: Path) -> None:
    for workload, name, problem in (("sft", "rl", "not for sft"), ("grpo", "sft", "not for ppo and grpo")):
        settings = {f"data.{split}_files": f"{root}/datasets/{name}/{split}.parquet" for split in ("train", "val")}
        key, text, severity = findings_of(root, workload=workload, settings=settings)[0]
        assert (key, severity, problem in text) == ("dataset", "error", True)
    write(root, [{"question": "1", "answer": "2"}] * 8)
    assert keys(root)[0] == ("dataset", "error")
    # A dataset class of the user reads what it needs.
    assert keys(root, settings={"data.custom_cls.path": "x.py"}) == []
    for split in ("train", "val"):
        rows = [{"chat" if key == "prompt" else key: row[key] for key in row} for row in rl_rows()[split]]
        write(root, rows, split=split)
    assert keys(root, settings={"data.prompt_key": "chat"}) == []


def test_a_ground_truth_that_is_null(root: Path) -> None:
    rows = rl_rows()["train"]
    rows[3]["reward_model"]["ground_truth"] = None
    write(root, rows)
    assert keys(root) == ERROR
    assert keys(root, reward_file=f"{root}/{REWARD_FILE}") == []
    write(root, rl_rows()["train"])
    # verl does not read this key.
    assert set(keys(root, settings={"data.reward_fn_key": "source"})) == set(WARNING)


@pytest.mark.parametrize(
    ("workload", "settings", "expected"),
    [
        ("grpo", {"data.train_batch_size": 128}, []),
        ("grpo", {"data.train_batch_size": 129}, ERROR),
        ("grpo", {"data.train_max_samples": 7}, ERROR),
        ("sft", {"data.train_batch_size": 33}, WARNING),
        ("sft", {"data.train_batch_size": 64, "data.val_files": None}, []),
    ],
)
def test_less_than_a_batch(root: Path, workload: str, settings: dict[str, Any], expected: Any) -> None:
    assert keys(root, workload=workload, settings=settings) == expected
    if expected == ERROR:
        assert facts(root, settings={**settings, "trainer.total_training_steps": 4})["steps"] == 0


def test_files_that_are_counted(root: Path) -> None:
    files = [f"{root}/datasets/rl/{split}.parquet" for split in ("train", "val")]
    assert facts(root, settings={"data.train_files": files})["train_rows"] == 144
    # verl reads JSON lines for RL, and files of HDFS; their rows are not counted.
    (root / "datasets/rl/train.jsonl").write_text("{}\n")
    for others in (["hdfs://a/b.parquet", *files], f"{root}/datasets/rl/train.jsonl"):
        assert not {"train_rows", "steps"} & set(facts(root, settings={"data.train_files": others}))
        assert keys(root, settings={"data.train_files": others}) == []
    parquet.write_table(parquet.read_schema(files[1]).empty_table(), files[1])
    assert keys(root) == ERROR


@pytest.mark.parametrize("changes", [{"config": None}, {"settings": {"data.val_files": None}}])
def test_sft_needs_no_data_for_validation(root: Path, changes: dict[str, Any]) -> None:
    (root / "datasets/sft/val.parquet").unlink()
    assert keys(root, workload="sft", **changes) == []


@pytest.mark.parametrize(
    ("images", "file", "release", "expected"),
    [
        ([{"bytes": b"x"}], "", "0.9.1", ERROR),
        ([{"bytes": b"x"}], "", "0.8.0", WARNING),
        ([{"bytes": b"x"}], "preprocessor_config.json", "0.9.1", []),
        ([], "", "0.9.1", []),
    ],
)
def test_images_for_a_model_that_reads_text(root: Path, images: Any, file: str, release: str, expected: Any) -> None:
    version(root, release)
    if file:
        (root / "common/models/tiny" / file).write_text("{}")
    write(root, rows_with(lambda row: row.update(images=images)))
    assert keys(root) == expected
