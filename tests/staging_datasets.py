"""Rows and files for the tests of datasets."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from hub import Hub
from pyarrow import parquet
from staging_store import manifest_json

from argus.checks.dataset import RL
from argus.staging.dataset import stage as datasets
from argus.staging.items import Dataset
from argus.staging.manifest import StageResult
from argus.staging.options import StageOptions, StagingError

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
    # A file with the same content keeps its time.
    if not path.exists() or path.read_bytes() != content:
        path.write_bytes(content)
    return str(path)


def table(path: Path, rows: list[Mapping[str, Any]], **how: Any) -> str:
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, **how)
    return str(path)


def stage(root: Path, name: str = "data", **options: Any) -> StageResult:
    how = {key: options.pop(key) for key in ("check", "repair", "full", "endpoint", "token") if key in options}
    return datasets.stage_dataset(root, Dataset(name=name, **options), StageOptions(**how))


def refused(root: Path, **options: Any) -> str:
    with pytest.raises(StagingError) as error:
        stage(root, **options)
    # It leaves nothing, and no lock.
    parent = root / "datasets"
    assert [path.name for path in parent.iterdir() if path.name != "data"] == [] if parent.exists() else True
    return str(error.value)


def read(root: Path, split: str = "train", name: str = "data") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = parquet.read_table(root / "datasets" / name / f"{split}.parquet").to_pylist()
    return rows


def mapped(raw: Path, root: Path, **options: Any) -> StageResult:
    """The questions, brought into verl's form."""
    train, val = lines(raw / "train.jsonl", QUESTIONS[:15]), lines(raw / "val.jsonl", QUESTIONS[15:])
    return stage(root, **{"files": {"train": [train], "val": [val]}, **MAPPED, **options})


def put(hub: Hub, **files: list[dict[str, Any]]) -> str:
    """A commit with the questions, in two parts and among other files."""
    contents = {
        "README.md": b"# Sums\n",
        "other/train-0.jsonl": b"not read",
        "main/extra.py": b"raise SystemExit('run')",
        "main/train-1.jsonl": jsonl(QUESTIONS[8:15]),
        "main/train-0.jsonl": jsonl(QUESTIONS[:8]),
        "main/test.jsonl": jsonl(QUESTIONS[15:]),
        **{name.replace("__", "/") + ".jsonl": jsonl(rows) for name, rows in files.items()},
    }
    return hub.add("team/sums", contents, kind="datasets", private=True)


def jsonl(rows: Iterable[Mapping[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def hubs(hub: Hub, /, **options: Any) -> dict[str, Any]:
    files = {"train": ["main/train-*.jsonl"], "val": ["main/test.jsonl"]}
    return {"hub": "team/sums", "files": files, "endpoint": hub.url, "token": hub.token, **MAPPED, **options}


def removed(root: Path, name: str = "data", **how: bool) -> StageResult:
    return datasets.remove_dataset(root, name, RL, **how)


def manifest(root: Path) -> dict[str, Any]:
    return manifest_json(root / "datasets/data")
