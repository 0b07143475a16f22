# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of the gate that looks at the things themselves: data, model, reward, packages and space, on the nodes.

It travels into Ray tasks by value, where there is neither Ansible nor this collection. So it imports nothing of
either, of the image's packages only what a check needs and inside of it, and a finding is a mapping with the keys of
``findings.Finding``. Of data and weights it reads footers, headers and a few rows.

A request is a mapping:

shared_root, workload, code_path, model, dataset: as in the JobSpec; all paths are absolute.
reward: the file and the function, or None.
environment: the environment variables of the job.
files: what has to be there on every node: paths, or a mapping of paths to their sizes on the head (None: any).
accept: checks whose errors the user takes as warnings: "requirements", "space".
config: the composed Hydra configuration of the job, or None when it is not known; then less is checked.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .common import (
    ERROR,
    SFT,
    WARNING,
    data_source_key,
    finding,
    has_reward_model,
    is_lfs_pointer,
    listed,
    one_line,
    pointer_finding,
    reward_manager,
    setting,
)

# Rows of each file that are looked at.
SAMPLE_ROWS = 64
# What chat templates know; others end up in the text as they are.
ROLES = ("system", "developer", "user", "assistant", "tool")


def data_findings(request: Mapping[str, Any], facts: dict[str, Any]) -> list[dict[str, str]]:
    config = request.get("config")
    found: list[dict[str, str]] = []
    for split in ("train", "val"):
        rows: int | None = 0
        files = data_files(request, split)
        for file in files:
            # verl fetches hdfs:// itself, and reads JSON lines for RL: neither tells its rows without being read.
            if not file.startswith("/") or file.endswith((".json", ".jsonl")):
                rows = None
                continue
            more, count = parquet_findings(request, facts, Path(file))
            found += more
            rows = None if rows is None or count is None else rows + count
        if not files or rows is None:
            continue
        limit = setting(config, f"data.{split}_max_samples", -1)
        rows = min(rows, limit) if limit > 0 else rows
        facts[f"{split}_rows"] = rows
        if rows == 0:
            found.append(finding("dataset", f"{', '.join(files)} has no rows", "stage it again, with rows in it"))
        else:
            found += batch_findings(request, split, rows, ", ".join(files))
    return found


def data_files(request: Mapping[str, Any], split: str) -> list[str]:
    if request.get("config") is None:
        return [f"{request['dataset']}/{split}.parquet"]
    files = map(str, listed(setting(request["config"], f"data.{split}_files")))
    return [file if "://" in file else str(Path(file).expanduser()) for file in files]


def batch_findings(request: Mapping[str, Any], split: str, rows: int, files: str) -> list[dict[str, str]]:
    """The last batch is dropped when it is not full, and so is the first when there is no other."""
    config = request.get("config")
    batch = setting(config, "data.train_batch_size")
    if not batch or rows >= batch or setting(config, "data.custom_cls.path"):
        return []
    if split == "train":
        what = f"{files} has {rows} rows, a batch takes {batch} (data.train_batch_size): there would be no step"
        todo = f"set data.train_batch_size to at most {rows} in trainer_overrides, or stage more rows"
        return [finding("dataset", what, todo)]
    if request["workload"] == SFT:
        # trainer/sft_trainer_ray.py: _build_dataloader validates in batches of the same size, and drops as well.
        what = f"{files} has {rows} rows, a batch takes {batch} (data.train_batch_size): val/loss would be nan"
        todo = f"set data.train_batch_size to at most {rows} in trainer_overrides, or stage more rows"
        return [finding("dataset", what, todo, WARNING)]
    return []


def parquet_findings(
    request: Mapping[str, Any], facts: dict[str, Any], path: Path
) -> tuple[list[dict[str, str]], int | None]:
    """What is wrong with a file, and its rows."""
    from pyarrow import ArrowException, parquet

    try:
        if is_lfs_pointer(path):
            return [pointer_finding("dataset", path)], None
        # Not whole column chunks: they may hold a gigabyte of images each.
        # pre_buffer would hold whole row groups all the same.
        file = parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)
    except FileNotFoundError:
        return [finding("dataset", f"{path} is not there", "stage it, or correct dataset")], None
    except (OSError, ArrowException) as error:
        what = f"{path} is not readable as parquet: {one_line(error)}"
        return [finding("dataset", what, "stage it again: it may have been cut off")], None
    with file:
        rows = file.metadata.num_rows
        # A dataset class of the user's own reads what it likes.
        if setting(request.get("config"), "data.custom_cls.path"):
            return [], rows
        found, columns = schema_findings(request, path, file.schema_arrow)
        if any(each["severity"] == ERROR for each in found):
            return found, rows
        try:
            batch = next(file.iter_batches(SAMPLE_ROWS, columns=columns), None)
        except (OSError, ArrowException) as error:
            what = f"{path} is damaged: {one_line(error)}"
            return [finding("dataset", what, "stage it again")], rows
        found += row_findings(request, facts, path, batch.to_pylist() if batch else [])
    return found, rows


def messages_key(request: Mapping[str, Any]) -> str:
    key, default = ("data.messages_key", "messages") if request["workload"] == SFT else ("data.prompt_key", "prompt")
    return str(setting(request.get("config"), key, default))


def reward_columns(request: Mapping[str, Any]) -> list[str]:
    """The columns that the reward is computed from."""
    # experimental/reward_loop/reward_loop.py: compute_score asks the reward model alone.
    if reward_manager(request) is None or (has_reward_model(request) and not request.get("reward")):
        return []
    return [data_source_key(request), "reward_model"]


def schema_findings(request: Mapping[str, Any], path: Path, schema: Any) -> tuple[list[dict[str, str]], list[str]]:
    """What is wrong with the columns, and those that are there of the ones that verl reads."""
    from pyarrow import types

    def fields(kind: Any) -> list[str]:
        return [kind.field(index).name for index in range(kind.num_fields)] if types.is_struct(kind) else []

    workload, names, key = request["workload"], schema.names, messages_key(request)
    has = f"it has: {', '.join(names)}"
    found: list[dict[str, str]] = []
    if key not in names:
        if workload == SFT and {"prompt", "reward_model"} <= set(names):
            what = f"{path} is a dataset for ppo and grpo (prompt, reward_model), not for sft: it has no column {key}"
            return [finding("dataset", what, "name a dataset made for sft, or choose workload: grpo or ppo")], []
        if workload != SFT and "messages" in names:
            what = f"{path} is a dataset for sft (messages), not for {workload}: it has no column {key}"
            return [finding("dataset", what, f"name a dataset made for {workload}, or choose workload: sft")], []
        option = "data.messages_key" if workload == SFT else "data.prompt_key"
        todo = f"name its column of messages with {option} in trainer_overrides, or stage it in verl's form"
        return [finding("dataset", f"{path} has no column {key}; {has}", todo)], []
    kind = schema.field(key).type
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if not is_list or not {"role", "content"} <= set(fields(kind.value_type)):
        what = f"{path}: column {key} is {kind}, verl reads a list of {{role, content}}"
        return [finding("dataset", what, "stage it in verl's form; see examples/data_preprocess of verl")], []
    columns = [key]
    reward = reward_columns(request)
    if reward:
        columns += reward
        for name in reward:
            if name not in names:
                what = f"{path} has no column {name}, which verl's reward managers read; {has}"
                found.append(finding("dataset", what, "stage it in verl's form; see examples/data_preprocess of verl"))
        if "reward_model" in names and "ground_truth" not in fields(schema.field("reward_model").type):
            what = f"{path}: column reward_model is {schema.field('reward_model').type}, without ground_truth in it"
            found.append(finding("dataset", what, "give it the form {style: rule, ground_truth: …}"))
        fn_key = setting(request.get("config"), "data.reward_fn_key", "data_source")
        if fn_key != data_source_key(request):
            what = f"data.reward_fn_key={fn_key} does nothing: since verl 0.9 the column is always data_source"
            found.append(finding("dataset", what, "leave it out", WARNING))
    if workload != SFT and "extra_info" in names:
        kind = schema.field("extra_info").type
        # utils/dataset/rl_dataset.py: __getitem__ calls its get().
        if not types.is_struct(kind) and not types.is_null(kind):
            what = f"{path}: column extra_info is {kind}, verl reads a mapping"
            found.append(finding("dataset", what, "make it a mapping, or leave it out"))
    return found, [name for name in columns if name in names]


def row_findings(
    request: Mapping[str, Any], facts: dict[str, Any], path: Path, sample: list[dict[str, Any]]
) -> list[dict[str, str]]:
    """What is wrong with the first rows; each kind once, with the first row that has it."""
    problems: dict[tuple[str, str], list[int]] = {}
    sources: dict[str, int] = {}
    source_key = data_source_key(request)
    for number, row in enumerate(sample):
        for problem in message_problems(request, row):
            problems.setdefault(problem, []).append(number)
        if "reward_model" in row:
            sources.setdefault(str(row[source_key]), number)
            if not request.get("reward") and (row["reward_model"] or {}).get("ground_truth") is None:
                problems.setdefault(("its ground_truth is null", ERROR), []).append(number)
    facts["data_sources"] = sorted({*facts.get("data_sources", ()), *sources})
    found = []
    for (what, severity), rows in problems.items():
        more = f" (and {len(rows) - 1} more of the first {len(sample)})" if len(rows) > 1 else ""
        todo = "correct the data and stage it again"
        found.append(finding("dataset", f"{path}, row {rows[0]}: {what}{more}", todo, severity))
    if sources and not request.get("reward"):
        known = known_data_sources(Path(request["code_path"]))
        for source, number in sources.items():
            if known and source not in known[0] and not source.startswith(known[1]):
                what = f"{path}, row {number}: verl has no reward function for data_source {source!r}"
                found.append(finding("dataset", what, "give reward_fn_path, or a data_source that verl knows"))
    return found


def message_problems(request: Mapping[str, Any], row: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    messages = row[messages_key(request)] or []
    roles = [(message or {}).get("role") for message in messages]
    if not messages:
        yield "it has no messages", ERROR
    elif request["workload"] == SFT and "assistant" not in roles:
        # utils/dataset/multiturn_sft_dataset.py: _process_single_message masks out everybody else.
        what = "no message is the assistant's, so there is nothing to learn"
        yield f"{what} (roles: {', '.join(map(str, roles))})", ERROR
    for role, message in zip(roles, messages):  # noqa: B905 - strict= is of Python 3.10
        if not role:
            yield "a message has no role", ERROR
        elif role not in ROLES:
            yield f"the role {role!r} is none that chat templates know ({', '.join(ROLES)})", WARNING
        elif role in ("user", "assistant") and not message.get("content") and not message.get("tool_calls"):
            yield f"a message of the {role} is empty", ERROR


def constants(tree: ast.AST) -> list[str]:
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def known_data_sources(code_path: Path) -> tuple[set[str], tuple[str, ...]] | None:
    """What the snapshot's own default_compute_score compares data_source with: names, and beginnings of names."""
    try:
        tree = ast.parse((code_path / "verl" / "utils" / "reward_score" / "__init__.py").read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return None
    names: set[str] = set()
    beginnings: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and node.left.id == "data_source":
            for each in node.comparators:
                names.update(constants(each))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "data_source.startswith":
            beginnings += [name for each in node.args for name in constants(each)]
    return (names, tuple(beginnings)) if names else None
