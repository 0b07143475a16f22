# SPDX-License-Identifier: Apache-2.0
"""Checks of the dataset: its columns and messages, its first rows, and whether it has enough of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..common.findings import ERROR, WARNING, Finding, about, errors
from ..common.text import one_line
from .common import CheckRequest, Facts, as_list, error_text, is_lfs_pointer, lfs_pointer_problem

# verl's requirements on the columns and messages of a dataset. Staging checks all rows, the gate only the first ones.
#
# A problem is a text that follows the name of a file, row or split; its remedy is a separate text.

RL, SFT = "rl", "sft"
SPLITS = ("train", "val")
# The column of messages that verl's trainers read.
MESSAGES = {RL: "prompt", SFT: "messages"}
# The roles that chat templates know. They render other roles as plain text.
ROLES = ("system", "developer", "user", "assistant", "tool")


def messages_problem(schema: Any, workload: str, key: str) -> tuple[str, str] | None:
    """The problem with the column of messages, and its remedy; None if verl can read it."""
    names = schema.names
    if key not in names:
        other = "choose another dataset, or another workload"
        if workload == SFT and {"prompt", "reward_model"} <= set(names):
            return f"is a dataset for ppo and grpo (prompt, reward_model), not for sft: it has no column {key}", other
        if workload == RL and "messages" in names:
            return f"is a dataset for sft (messages), not for ppo and grpo: it has no column {key}", other
        return (
            f"has no column {key}; it has: {', '.join(names)}",
            "set columns in staging_datasets to the names of its columns",
        )
    kind = schema.field(key).type
    content = content_type(kind)
    if content is None:
        problem = f"has a column {key} of type {kind}, where verl reads a list of {{role, content}}"
        text = f"set columns to {{{key}: {key}}} in staging_datasets if it is text, or " if workload == RL else ""
        return problem, f"{text}rename its fields"
    if not (is_text(content) or is_list(content)):
        return f"has messages with content of type {content}, where verl reads text", "write it as text"
    return None


def reward_problems(schema: Any, columns: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The problems with the columns that the reward is computed from, and their remedies."""
    from pyarrow import types

    for name in columns:
        if name not in schema.names:
            problem = f"has no column {name}, which verl's reward managers read; it has: {', '.join(schema.names)}"
            yield problem, "convert it to verl's schema, or set columns in staging_datasets to the names of its columns"
    if "reward_model" in schema.names:
        kind = schema.field("reward_model").type
        if not (types.is_struct(kind) and kind.get_field_index("ground_truth") >= 0):
            yield f"has a column reward_model of type {kind}", "give it the form {style: rule, ground_truth: …}"


def extra_info_problem(schema: Any) -> tuple[str, str] | None:
    from pyarrow import types

    kind = schema.field("extra_info").type if "extra_info" in schema.names else None
    # utils/dataset/rl_dataset.py: __getitem__ calls its get().
    if kind is None or types.is_struct(kind) or types.is_null(kind):
        return None
    return f"has a column extra_info of type {kind}, where verl reads a mapping", "make it a mapping, or remove it"


def message_problems(
    workload: str, messages: Sequence[Mapping[str, Any] | None] | None
) -> Iterator[tuple[str, str, str]]:
    """The problems of a conversation: severity, text, and the role that has it."""
    conversation = [message or {} for message in messages or ()]
    if not conversation:
        yield ERROR, "has no messages", ""
    for message in conversation:
        role = message.get("role")
        if not role or not role.strip():
            yield ERROR, "has a message without a role", ""
        elif role not in ROLES:
            yield WARNING, f"has a role that is none of {', '.join(ROLES)}", role
        elif role in ("user", "assistant") and is_empty(message):
            yield ERROR, "has an empty user or assistant message", role
        elif role in ("system", "developer") and is_empty(message):
            yield WARNING, "has an empty system or developer message", role
    # utils/dataset/multiturn_sft_dataset.py: _process_single_message masks all other roles.
    answers = [message.get("role") == "assistant" and not is_empty(message) for message in conversation]
    if workload == SFT and conversation:
        last = str(conversation[-1].get("role"))
        if not any(answers):
            yield ERROR, "has no assistant message with content, so there is nothing to learn", last
        elif last != "assistant":
            yield WARNING, "has messages after the last assistant message, which are not learned", last


def is_empty(message: Mapping[str, Any]) -> bool:
    """Whether a message has neither content nor the call of a tool."""
    content = message.get("content")
    return not (content.strip() if isinstance(content, str) else content) and not message.get("tool_calls")


def content_type(kind: Any) -> Any:
    """The type of the content of messages; None if the type is not a list of messages."""
    from pyarrow import types

    if not is_list(kind) or not types.is_struct(kind.value_type):
        return None
    fields = {kind.value_type.field(index).name: index for index in range(kind.value_type.num_fields)}
    return kind.value_type.field(fields["content"]).type if {"role", "content"} <= set(fields) else None


def is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_text(kind: Any) -> bool:
    """Whether the type is text, or has null as its only value."""
    from pyarrow import types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    return any(test(kind) for test in (types.is_string, types.is_large_string, types.is_string_view, types.is_null))


# Checks of the dataset: its columns, its first rows, and whether it has enough rows.

# The rows of each file that are read.
MAX_SAMPLE_ROWS = 64
MAX_ROLE_CHARS = 60
finding = partial(about, "dataset")
STAGE_AGAIN = "correct the data and stage it again"


def dataset_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    findings: list[Finding] = []
    for split in request.splits:
        files = data_files(request, split)
        counts = []
        for file in files:
            more, rows = parquet_findings(request, facts, file)
            findings += more
            counts.append(rows)
        known_counts = [rows for rows in counts if rows is not None]
        if not files or len(known_counts) < len(counts):
            continue
        limit = request.setting(f"data.{split}_max_samples", -1)
        rows = min(sum(known_counts), limit) if limit > 0 else sum(known_counts)
        setattr(facts, f"{split}_rows", rows)
        if rows == 0:
            findings.append(finding(f"{', '.join(files)} has no rows", "stage a dataset that has rows"))
        else:
            findings += batch_findings(request, split, rows, ", ".join(files))
    return findings


def data_files(request: CheckRequest, split: str) -> list[str]:
    if request.config is None:
        file = f"{request.dataset}/{split}.parquet"
        # Only PPO and GRPO need data for validation.
        return [] if request.is_sft and split == "val" and not Path(file).exists() else [file]
    files = map(str, as_list(request.setting(f"data.{split}_files")))
    return [file if "://" in file else str(Path(file).expanduser()) for file in files]


def batch_findings(request: CheckRequest, split: str, rows: int, files: str) -> Iterator[Finding]:
    """verl drops a last batch that is not full. If there is no other batch, nothing is left."""
    batch = request.number("data.train_batch_size")
    if not batch or rows >= batch or request.setting("data.custom_cls.path"):
        return
    problem = f"{files} has {rows} rows, but data.train_batch_size is {batch}"
    remedy = f"set data.train_batch_size to at most {rows} in trainer_overrides, or stage more rows"
    if split == "train":
        yield finding(f"{problem}: the job would run no step", remedy)
    elif request.is_sft:
        # trainer/sft_trainer_ray.py: _build_dataloader validates in batches of the same size, and drops them as well.
        yield finding(f"{problem}: val/loss would be nan", remedy, WARNING)


def first_rows(path: Path, columns: Sequence[str], count: int) -> list[dict[str, Any]]:
    """The first rows of a file; none if it cannot be read, which the check of the dataset reports."""
    from pyarrow import ArrowException

    try:
        with open_parquet(path) as file:
            names = [name for name in columns if name in file.schema_arrow.names]
            batch = next(file.iter_batches(count, columns=names), None)
            return batch.to_pylist() if batch else []
    except (OSError, ArrowException):
        return []


def open_parquet(path: Path) -> Any:
    """A file of Parquet, to be read in pieces: a column chunk may hold a gigabyte of images."""
    from pyarrow import parquet

    # pre_buffer would load complete row groups all the same, and keep them until the last one is read (seen with 26.0).
    return parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)


def parquet_findings(request: CheckRequest, facts: Facts, name: str) -> tuple[list[Finding], int | None]:
    """Problems with a file, and its number of rows; None if that is unknown."""
    from pyarrow import ArrowException

    path = Path(name)
    # verl downloads hdfs:// itself, and reads JSON lines for RL. Both would have to be read to count their rows.
    if not name.startswith("/") or name.endswith((".json", ".jsonl")):
        return [], None
    try:
        if is_lfs_pointer(path):
            return [finding(*lfs_pointer_problem(path))], None
        file = open_parquet(path)
    except FileNotFoundError:
        # The check of paths reports files outside the shared root.
        missing = [finding(f"{path} does not exist", "stage it with stage.yml, or correct dataset")]
        return [] if request.is_outside_shared_root(str(path)) else missing, None
    except (OSError, ArrowException) as error:
        problem = f"{path} cannot be read as Parquet: {error_text(error)}"
        return [finding(problem, "stage it again: the file may be truncated")], None
    with file:
        rows = file.metadata.num_rows
        # A dataset class of the user reads what it needs.
        if request.setting("data.custom_cls.path"):
            return [], rows
        findings, columns = schema_findings(request, path, file.schema_arrow)
        findings += media_findings(request, path, file)
        if errors(findings):
            return findings, rows
        try:
            batch = next(file.iter_batches(MAX_SAMPLE_ROWS, columns=columns), None)
        except (OSError, ArrowException) as error:
            return [finding(f"{path} is corrupted: {error_text(error)}", "stage it again")], rows
        return findings + row_findings(request, facts, path, batch.to_pylist() if batch else []), rows


def media_findings(request: CheckRequest, path: Path, file: Any) -> Iterator[Finding]:
    """Findings about images and videos for a model without a processor for them."""
    keys = {str(request.setting(f"data.{key}_key", f"{key}s")) for key in ("image", "video")}
    columns = sorted(keys & set(file.schema_arrow.names))
    # A row alone may have many megabytes.
    batch = next(file.iter_batches(1, columns=columns), None) if columns and request.is_text_only else None
    used = [name for name, values in (batch.to_pydict() if batch else {}).items() if values[0]]
    if used:
        # utils/dataset/multiturn_sft_dataset.py, rl_dataset.py: _build_messages
        problem = f"{path} has {', '.join(used)}, but the model reads only text: it has no preprocessor_config.json"
        severity = ERROR if request.verl_at_least((0, 9)) else WARNING
        yield finding(problem, "choose a model that reads them, or stage the data without them", severity)


def messages_key(request: CheckRequest) -> str:
    key = "data.messages_key" if request.is_sft else "data.prompt_key"
    return str(request.setting(key, MESSAGES[kind_of(request)]))


def kind_of(request: CheckRequest) -> str:
    return SFT if request.is_sft else RL


def schema_findings(request: CheckRequest, path: Path, schema: Any) -> tuple[list[Finding], list[str]]:
    """Problems with the columns, and those columns that verl reads and the file has."""
    key, reward = messages_key(request), [request.data_source_key, "reward_model"]
    # experimental/reward_loop/reward_loop.py: compute_score uses only the reward model.
    if request.per_sample_reward_manager is None or (request.has_reward_model and not request.reward_file):
        reward = []
    message_problem = messages_problem(schema, kind_of(request), key)
    if message_problem:
        return [finding(f"{path} {message_problem[0]}", message_problem[1])], []
    problems = [*reward_problems(schema, reward)] if reward else []
    if not request.is_sft and (info_problem := extra_info_problem(schema)):
        problems.append(info_problem)
    findings = [finding(f"{path} {problem}", remedy) for problem, remedy in problems]
    reward_column = request.setting("data.reward_fn_key", "data_source")
    if reward and reward_column != request.data_source_key:
        problem = f"data.reward_fn_key={reward_column} has no effect: since verl 0.9 the column is always data_source"
        findings.append(finding(problem, "remove it", WARNING))
    return findings, [name for name in (key, *reward) if name in schema.names]


def row_findings(request: CheckRequest, facts: Facts, path: Path, sample: list[dict[str, Any]]) -> list[Finding]:
    """Problems with the first rows. Each kind is reported once, with the first row that has it."""
    problems: dict[tuple[str, str], list[int]] = {}
    sources: dict[str, int] = {}
    for number, row in enumerate(sample):
        for severity, problem, role in message_problems(kind_of(request), row[messages_key(request)]):
            problems.setdefault(
                (f"{problem} ({one_line(role, MAX_ROLE_CHARS)})" if role else problem, severity), []
            ).append(number)
        if "reward_model" not in row:
            continue
        sources.setdefault(str(row[request.data_source_key]), number)
        if not request.reward_file and (row["reward_model"] or {}).get("ground_truth") is None:
            problems.setdefault(("has no reward_model.ground_truth", ERROR), []).append(number)
    facts.data_sources = sorted({*(facts.data_sources or ()), *sources})
    findings = []
    for (problem, severity), rows in problems.items():
        more = f" (and {len(rows) - 1} more of the first {len(sample)} rows)" if len(rows) > 1 else ""
        findings.append(finding(f"{path}, row {rows[0]}: {problem}{more}", STAGE_AGAIN, severity))
    return findings if request.reward_file else findings + source_findings(request, path, sources)


def source_findings(request: CheckRequest, path: Path, sources: Mapping[str, int]) -> list[Finding]:
    """Data sources, with their first rows, for which the snapshot has no reward function."""
    names, prefixes = known_data_sources(Path(request.code_path))
    remedy = "set reward_fn_path, or use a data_source that verl knows"
    return [
        finding(f"{path}, row {number}: verl has no reward function for data_source {source!r}", remedy)
        for source, number in sources.items()
        if names and source not in names and not source.startswith(tuple(prefixes))
    ]


def known_data_sources(code_path: Path) -> tuple[set[str], set[str]]:
    """The names, and prefixes of names, with which the snapshot's own default_compute_score compares data_source."""
    names: set[str] = set()
    prefixes: set[str] = set()
    try:
        tree = ast.parse((code_path / "verl" / "utils" / "reward_score" / "__init__.py").read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return names, prefixes
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and node.left.id == "data_source":
            names |= {name for operand in node.comparators for name in texts_in(operand)}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "data_source.startswith":
            prefixes |= {name for argument in node.args for name in texts_in(argument)}
    return names, prefixes


def texts_in(tree: ast.AST) -> list[str]:
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
