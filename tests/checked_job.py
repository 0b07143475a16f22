"""A job on a shared root, for the tests of checks: its files, its request, and the findings about it."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow
from pyarrow import parquet

from argus.checks.request import CheckRequest, Configuration
from argus.checks.worker import check_worker
from argus.common.findings import Finding
from argus.staging.tiny import rl_rows, sft_rows

CODE = "common/code/verl/verl-0.9.1"
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"
REWARD_FILE = "user/code/r.py"
REWARD = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return 0.0\n"
SCORES = """
def default_compute_score(data_source, solution_str, ground_truth):
    if data_source == "openai/gsm8k":
        return 1
    elif data_source in ["math_dapo", "math"] or data_source.startswith("aime"):
        return 2
"""
REQUIREMENTS = ["numpy>=2.0.0", "tensordict!=0.9.0,<=0.10.0,>=0.8.0", "wandb", "pybind11", "pytest; extra == 'test'"]
Findings = list[tuple[str, str, str]]


def safetensors(path: Path, names: tuple[str, ...] = ("a", "b")) -> None:
    """A file with 12 parameters in each tensor."""
    header = {
        name: {"dtype": "F32", "shape": [3, 4], "data_offsets": [48 * index, 48 * (index + 1)]}
        for index, name in enumerate(names)
    }
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(48 * len(names)))


def shared_root(shared: Path) -> Path:
    """A shared root with a snapshot, a model, a dataset of each kind and a reward function."""
    (shared / "jobs").mkdir(parents=True)
    scores = shared / CODE / "verl/utils/reward_score"
    scores.mkdir(parents=True)
    (scores / "__init__.py").write_text(SCORES)
    declare(shared, *REQUIREMENTS)
    model = shared / "common/models/tiny"
    model.mkdir(parents=True)
    (model / "config.json").write_text('{"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}')
    (model / "tokenizer.json").write_text("{}\n")
    (model / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    safetensors(model / "model.safetensors")
    for file, content in datasets().items():
        (shared / "datasets" / file).parent.mkdir(parents=True, exist_ok=True)
        (shared / "datasets" / file).write_bytes(content)
    (shared / "user/code").mkdir(parents=True)
    (shared / REWARD_FILE).write_text(REWARD)
    return shared


@cache
def datasets() -> dict[str, bytes]:
    """A dataset of each kind, by file."""
    contents = {}
    for name, rows in (("rl", rl_rows()), ("sft", sft_rows())):
        for split, part in rows.items():
            buffer = io.BytesIO()
            parquet.write_table(pyarrow.Table.from_pylist(part), buffer)
            contents[f"{name}/{split}.parquet"] = buffer.getvalue()
    return contents


def declare(root: Path, *requirements: str) -> None:
    """The packages that the snapshot requires."""
    manifest = {"verl_version": "0.9.1", "requirements": requirements}
    (root / CODE / "manifest.json").write_text(json.dumps(manifest))


def version(root: Path, text: str) -> None:
    """The version of verl that the snapshot declares."""
    file = root / CODE / "verl/version/version"
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"{text}\n")


def write(root: Path, rows: list[dict[str, Any]], name: str = "rl", split: str = "train") -> None:
    parquet.write_table(pyarrow.Table.from_pylist(rows), root / "datasets" / name / f"{split}.parquet")


def rows_with(change: Callable[[dict[str, Any]], None], name: str = "rl") -> list[dict[str, Any]]:
    rows = (rl_rows() if name == "rl" else sft_rows())["train"]
    for row in rows:
        change(row)
    return rows


def request(root: Path, workload: str = "grpo", settings: dict[str, Any] | None = None, **changes: Any) -> CheckRequest:
    """A request without problems, whose reward is verl's own. `settings` change its configuration, by dotted keys."""
    name = "sft" if workload == "sft" else "rl"
    files = {f"{split}_files": f"{root}/datasets/{name}/{split}.parquet" for split in ("train", "val")}
    config: dict[str, Any] = {"data": {"train_batch_size": 8, **files}, "trainer": {"save_freq": 10, "total_epochs": 1}}
    for key, value in (settings or {}).items():
        inner = config
        *parts, last = key.split(".")
        for part in parts:
            inner = inner.setdefault(part, {})
        inner[last] = value
    values: dict[str, Any] = {
        "shared_root": str(root),
        "workload": workload,
        "code_path": f"{root}/{CODE}",
        "model": f"{root}/common/models/tiny",
        "dataset": f"{root}/datasets/{name}",
        "reward_function": "compute_score",
        "config": Configuration(config),
    }
    return CheckRequest(**values | changes)


def checked(root: Path, **changes: Any) -> tuple[Finding, ...]:
    return tuple(check_worker(request(root, **changes))[0])


def findings_of(root: Path, **changes: Any) -> Findings:
    """Key, problem and severity of the findings, with the shared root written as /private."""
    return [
        (finding.key, finding.problem.replace(str(root), "/private"), finding.severity)
        for finding in checked(root, **changes)
    ]


def keys(root: Path, **changes: Any) -> list[tuple[str, str]]:
    """Key and severity of the findings."""
    return [(finding.key, finding.severity) for finding in checked(root, **changes)]


def facts(root: Path, **changes: Any) -> dict[str, Any]:
    return check_worker(request(root, **changes))[1].to_json()
