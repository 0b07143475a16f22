# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the dataset: its columns, its first rows, and whether it has enough rows."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.findings import ERROR, WARNING, Finding, about, errors
from .common import CheckRequest, error_text, is_lfs_pointer, listed, pointer_problem
from .conversation import ROLES, UNKNOWN_ROLE_SEVERITY
from .facts import Facts

# The rows of each file that are read.
SAMPLE_ROWS = 64
STAGE_AGAIN = "correct the data and stage it again"
VERL_FORMAT = "stage it in verl's format; see examples/data_preprocess in verl"


def problem(what: str, todo: str, severity: str = ERROR) -> Finding:
    return about("dataset", what, todo, severity)


def dataset_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    found: list[Finding] = []
    for split in ("train", "val"):
        files = data_files(request, split)
        more, rows = split_findings(request, facts, files)
        found += more
        if not files or rows is None:
            continue
        limit = request.setting(f"data.{split}_max_samples", -1)
        rows = min(rows, limit) if limit > 0 else rows
        if split == "train":
            facts.train_rows = rows
        else:
            facts.val_rows = rows
        if rows == 0:
            found.append(problem(f"{', '.join(files)} has no rows", "stage a dataset that has rows"))
        else:
            found += batch_findings(request, split, rows, ", ".join(files))
    return found


def data_files(request: CheckRequest, split: str) -> list[str]:
    if request.config is None:
        file = f"{request.dataset}/{split}.parquet"
        # Only PPO and GRPO need data for validation.
        return [] if request.is_sft and split == "val" and not Path(file).exists() else [file]
    files = map(str, listed(request.setting(f"data.{split}_files")))
    return [file if "://" in file else str(Path(file).expanduser()) for file in files]


def split_findings(request: CheckRequest, facts: Facts, files: Sequence[str]) -> tuple[list[Finding], int | None]:
    """Problems with the files of a split, and its number of rows; None if that is unknown."""
    found: list[Finding] = []
    rows: int | None = 0
    for file in files:
        # verl downloads hdfs:// itself, and reads JSON lines for RL. Both would have to be read to count their rows.
        if not file.startswith("/") or file.endswith((".json", ".jsonl")):
            rows = None
            continue
        more, count = parquet_findings(request, facts, Path(file))
        found += more
        rows = None if rows is None or count is None else rows + count
    return found, rows


def batch_findings(request: CheckRequest, split: str, rows: int, files: str) -> list[Finding]:
    """verl drops a last batch that is not full. If there is no other batch, nothing is left."""
    batch = request.number("data.train_batch_size")
    if not batch or rows >= batch or request.setting("data.custom_cls.path"):
        return []
    what = f"{files} has {rows} rows, but data.train_batch_size is {batch}"
    todo = f"set data.train_batch_size to at most {rows} in trainer_overrides, or stage more rows"
    if split == "train":
        return [problem(f"{what}: the job would run no step", todo)]
    if request.is_sft:
        # trainer/sft_trainer_ray.py: _build_dataloader validates in batches of the same size, and drops them as well.
        return [problem(f"{what}: val/loss would be nan", todo, WARNING)]
    return []


def parquet_findings(request: CheckRequest, facts: Facts, path: Path) -> tuple[list[Finding], int | None]:
    """Problems with a file, and its number of rows; None if it cannot be read."""
    from pyarrow import ArrowException, parquet

    try:
        if is_lfs_pointer(path):
            return [problem(*pointer_problem(path))], None
        # A column chunk may hold a gigabyte of images, so read it in pieces. pre_buffer would load complete row groups
        # all the same.
        file = parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)
    except FileNotFoundError:
        # Those outside the shared root are reported as such.
        missing = [problem(f"{path} does not exist", "stage it with stage.yml, or correct dataset")]
        return [] if request.is_outside(str(path)) else missing, None
    except (OSError, ArrowException) as error:
        what = f"{path} cannot be read as Parquet: {error_text(error)}"
        return [problem(what, "stage it again: the file may be truncated")], None
    with file:
        rows = file.metadata.num_rows
        # A dataset class of the user reads what it needs.
        if request.setting("data.custom_cls.path"):
            return [], rows
        found, columns = schema_findings(request, path, file.schema_arrow)
        if errors(found):
            return found, rows
        try:
            batch = next(file.iter_batches(SAMPLE_ROWS, columns=columns), None)
        except (OSError, ArrowException) as error:
            return [problem(f"{path} is corrupted: {error_text(error)}", "stage it again")], rows
        return found + row_findings(request, facts, path, batch.to_pylist() if batch else []), rows


def messages_key(request: CheckRequest) -> str:
    key, default = ("data.messages_key", "messages") if request.is_sft else ("data.prompt_key", "prompt")
    return str(request.setting(key, default))


def reward_columns(request: CheckRequest) -> list[str]:
    """The columns that the reward is computed from."""
    # experimental/reward_loop/reward_loop.py: compute_score uses only the reward model.
    if request.reward_manager is None or (request.has_reward_model and not request.reward_file):
        return []
    return [request.data_source_key, "reward_model"]


def fields_of(kind: Any) -> list[str]:
    """The names of the fields of an Arrow type."""
    from pyarrow import types

    return [kind.field(index).name for index in range(kind.num_fields)] if types.is_struct(kind) else []


def schema_findings(request: CheckRequest, path: Path, schema: Any) -> tuple[list[Finding], list[str]]:
    """Problems with the columns, and those columns that verl reads and the file has."""
    found = message_column_findings(request, path, schema)
    if found:
        return found, []
    reward = reward_columns(request)
    if reward:
        found += reward_column_findings(request, path, schema, reward)
    if not request.is_sft and "extra_info" in schema.names:
        found += extra_info_findings(path, schema)
    return found, [name for name in (messages_key(request), *reward) if name in schema.names]


def message_column_findings(request: CheckRequest, path: Path, schema: Any) -> list[Finding]:
    from pyarrow import types

    workload, names, key = request.workload, schema.names, messages_key(request)
    if key not in names:
        if request.is_sft and {"prompt", "reward_model"} <= set(names):
            what = f"{path} is a dataset for ppo and grpo (prompt, reward_model), not for sft: it has no column {key}"
            return [problem(what, "choose a dataset for sft, or workload: grpo or ppo")]
        if not request.is_sft and "messages" in names:
            what = f"{path} is a dataset for sft (messages), not for {workload}: it has no column {key}"
            return [problem(what, f"choose a dataset for {workload}, or workload: sft")]
        option = "data.messages_key" if request.is_sft else "data.prompt_key"
        todo = f"set {option} to its column of messages in trainer_overrides, or stage it in verl's format"
        return [problem(f"{path} has no column {key}; its columns are {', '.join(names)}", todo)]
    kind = schema.field(key).type
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    if is_list and {"role", "content"} <= set(fields_of(kind.value_type)):
        return []
    what = f"{path}: column {key} is of type {kind}, but verl reads a list of {{role, content}}"
    return [problem(what, VERL_FORMAT)]


def reward_column_findings(request: CheckRequest, path: Path, schema: Any, columns: Sequence[str]) -> list[Finding]:
    names = schema.names
    found = []
    for name in columns:
        if name not in names:
            has = f"its columns are {', '.join(names)}"
            what = f"{path} has no column {name}, which verl's reward managers read; {has}"
            found.append(problem(what, VERL_FORMAT))
    if "reward_model" in names and "ground_truth" not in fields_of(schema.field("reward_model").type):
        what = f"{path}: column reward_model ({schema.field('reward_model').type}) has no field ground_truth"
        found.append(problem(what, "give it the form {style: rule, ground_truth: …}"))
    asked = request.setting("data.reward_fn_key", "data_source")
    if asked != request.data_source_key:
        what = f"data.reward_fn_key={asked} has no effect: since verl 0.9 the column is always data_source"
        found.append(problem(what, "remove it", WARNING))
    return found


def extra_info_findings(path: Path, schema: Any) -> list[Finding]:
    from pyarrow import types

    kind = schema.field("extra_info").type
    # utils/dataset/rl_dataset.py: __getitem__ calls its get().
    if types.is_struct(kind) or types.is_null(kind):
        return []
    what = f"{path}: column extra_info is of type {kind}, but verl reads a mapping"
    return [problem(what, "convert it to a mapping, or remove the column")]


def row_findings(request: CheckRequest, facts: Facts, path: Path, sample: list[dict[str, Any]]) -> list[Finding]:
    """Problems with the first rows. Each kind is reported once, with the first row that has it."""
    problems: dict[tuple[str, str], list[int]] = {}
    sources: dict[str, int] = {}
    for number, row in enumerate(sample):
        for found in message_problems(request, row):
            problems.setdefault(found, []).append(number)
        if "reward_model" not in row:
            continue
        sources.setdefault(str(row[request.data_source_key]), number)
        if not request.reward_file and (row["reward_model"] or {}).get("ground_truth") is None:
            problems.setdefault(("ground_truth is null", ERROR), []).append(number)
    facts.data_sources = sorted({*(facts.data_sources or ()), *sources})
    findings = []
    for (what, severity), rows in problems.items():
        more = f" (and {len(rows) - 1} more of the first {len(sample)} rows)" if len(rows) > 1 else ""
        findings.append(problem(f"{path}, row {rows[0]}: {what}{more}", STAGE_AGAIN, severity))
    return findings if request.reward_file else findings + source_findings(request, path, sources)


def source_findings(request: CheckRequest, path: Path, sources: Mapping[str, int]) -> list[Finding]:
    """Data sources, with their first rows, for which the snapshot has no reward function."""
    known = known_data_sources(Path(request.code_path))
    if known is None:
        return []
    todo = "set reward_fn_path, or use a data_source that verl knows"
    return [
        problem(f"{path}, row {number}: verl has no reward function for data_source {source!r}", todo)
        for source, number in sources.items()
        if not known.has(source)
    ]


def message_problems(request: CheckRequest, row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Problems with the messages of a row, and their severities."""
    messages = row[messages_key(request)] or []
    roles = [(message or {}).get("role") for message in messages]
    if not messages:
        yield "there are no messages", ERROR
    elif request.is_sft and "assistant" not in roles:
        # utils/dataset/multiturn_sft_dataset.py: _process_single_message masks all other roles.
        what = "no message is from the assistant, so there is nothing to learn"
        yield f"{what} (roles: {', '.join(map(str, roles))})", ERROR
    for role, message in zip(roles, messages, strict=True):
        if not role:
            yield "a message has no role", ERROR
        elif role not in ROLES:
            yield f"chat templates do not know the role {role!r} (known: {', '.join(ROLES)})", UNKNOWN_ROLE_SEVERITY
        elif role in ("user", "assistant") and not message.get("content") and not message.get("tool_calls"):
            yield f"a message from the {role} is empty", ERROR


@dataclass(frozen=True)
class DataSources:
    """The data sources that verl has a reward function for: names, and prefixes of names."""

    names: frozenset[str]
    prefixes: tuple[str, ...]

    def has(self, source: str) -> bool:
        return source in self.names or source.startswith(self.prefixes)


def constants(tree: ast.AST) -> list[str]:
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def known_data_sources(code_path: Path) -> DataSources | None:
    """What the snapshot's own default_compute_score compares data_source with; None if that is unknown."""
    try:
        tree = ast.parse((code_path / "verl" / "utils" / "reward_score" / "__init__.py").read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return None
    names: set[str] = set()
    prefixes: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and node.left.id == "data_source":
            names.update(name for each in node.comparators for name in constants(each))
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "data_source.startswith":
            prefixes += [name for each in node.args for name in constants(each)]
    return DataSources(frozenset(names), tuple(prefixes)) if names else None
