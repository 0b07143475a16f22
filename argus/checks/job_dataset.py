# SPDX-License-Identifier: Apache-2.0
"""Checks the dataset of a job: the columns of its files, their first rows, and whether they have enough rows."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ..common.findings import ERROR, WARNING, Finding, about, errors
from ..common.text import one_line
from .dataset import (
    MESSAGES,
    RL,
    SFT,
    extra_info_problem,
    message_problems,
    messages_column_problem,
    open_parquet,
    reward_problems,
)
from .request import CheckRequest, Facts, as_list, error_text, is_lfs_pointer, lfs_pointer_problem

# How many rows of each file are checked.
MAX_SAMPLE_ROWS = 64
MAX_ROLE_CHARS = 60
dataset_finding = partial(about, "dataset")
STAGE_AGAIN = "correct the data and stage it again"


def dataset_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    """Findings about all splits that the job uses. Fills in their numbers of rows and their data sources."""
    findings: list[Finding] = []
    for split in request.splits:
        files = data_files(request, split)
        counts = []
        for file in files:
            more, rows = check_file(request, facts, file)
            findings += more
            counts.append(rows)
        known_counts = [rows for rows in counts if rows is not None]
        if not files or len(known_counts) < len(counts):
            continue
        limit = request.setting(f"data.{split}_max_samples", -1)
        rows = min(sum(known_counts), limit) if limit > 0 else sum(known_counts)
        setattr(facts, f"{split}_rows", rows)
        if rows == 0:
            findings.append(dataset_finding(f"{', '.join(files)} has no rows", "stage a dataset that has rows"))
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
    """Findings about a split with fewer rows than a batch: verl drops a batch that is not full, so nothing is left."""
    batch = request.number("data.train_batch_size")
    if not batch or rows >= batch or request.setting("data.custom_cls.path"):
        return
    problem = f"{files} has {rows} rows, but data.train_batch_size is {batch}"
    remedy = f"set data.train_batch_size to at most {rows} in trainer_overrides, or stage more rows"
    if split == "train":
        yield dataset_finding(f"{problem}: the job would run no step", remedy)
    elif request.is_sft:
        # trainer/sft_trainer_ray.py: _build_dataloader validates in batches of the same size, and drops them as well.
        yield dataset_finding(f"{problem}: val/loss would be nan", remedy, WARNING)


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


def check_file(request: CheckRequest, facts: Facts, name: str) -> tuple[list[Finding], int | None]:
    """Findings about a file of Parquet, and its number of rows; None if that is unknown."""
    from pyarrow import ArrowException

    path = Path(name)
    # verl downloads hdfs:// itself, and for RL it reads JSON lines. To count rows, both would have to be read in full.
    if not name.startswith("/") or name.endswith((".json", ".jsonl")):
        return [], None
    try:
        if is_lfs_pointer(path):
            return [dataset_finding(*lfs_pointer_problem(path))], None
        file = open_parquet(path)
    except FileNotFoundError:
        # The check of paths reports files outside the shared root.
        missing = [dataset_finding(f"{path} does not exist", "stage it with stage.yml, or correct dataset")]
        return [] if request.is_outside_shared_root(str(path)) else missing, None
    except (OSError, ArrowException) as error:
        problem = f"{path} cannot be read as Parquet: {error_text(error)}"
        return [dataset_finding(problem, "stage it again: the file may be truncated")], None
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
            return [dataset_finding(f"{path} is corrupted: {error_text(error)}", "stage it again")], rows
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
        yield dataset_finding(problem, "choose a model that reads them, or stage the data without them", severity)


def messages_key(request: CheckRequest) -> str:
    key = "data.messages_key" if request.is_sft else "data.prompt_key"
    return str(request.setting(key, MESSAGES[kind_of(request)]))


def kind_of(request: CheckRequest) -> str:
    return SFT if request.is_sft else RL


def schema_findings(request: CheckRequest, path: Path, schema: Any) -> tuple[list[Finding], list[str]]:
    """Findings about the columns of a file, and the names of those that verl reads and the file has."""
    key, reward = messages_key(request), [request.data_source_key, "reward_model"]
    # experimental/reward_loop/reward_loop.py: compute_score uses only the reward model.
    if request.per_sample_reward_manager is None or (request.has_reward_model and not request.reward_file):
        reward = []
    message_problem = messages_column_problem(schema, kind_of(request), key)
    if message_problem:
        return [dataset_finding(f"{path} {message_problem[0]}", message_problem[1])], []
    problems = [*reward_problems(schema, reward)] if reward else []
    if not request.is_sft and (info_problem := extra_info_problem(schema)):
        problems.append(info_problem)
    findings = [dataset_finding(f"{path} {problem}", remedy) for problem, remedy in problems]
    reward_column = request.setting("data.reward_fn_key", "data_source")
    if reward and reward_column != request.data_source_key:
        problem = f"data.reward_fn_key={reward_column} has no effect: since verl 0.9 the column is always data_source"
        findings.append(dataset_finding(problem, "remove it", WARNING))
    return findings, [name for name in (key, *reward) if name in schema.names]


def row_findings(request: CheckRequest, facts: Facts, path: Path, sample: list[dict[str, Any]]) -> list[Finding]:
    """Findings about the first rows. A problem is reported once, with the first row that has it."""
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
        findings.append(dataset_finding(f"{path}, row {rows[0]}: {problem}{more}", STAGE_AGAIN, severity))
    return findings if request.reward_file else findings + source_findings(request, path, sources)


def source_findings(request: CheckRequest, path: Path, sources: Mapping[str, int]) -> list[Finding]:
    """Findings about data sources, given with their first rows, for which the snapshot has no reward function."""
    names, prefixes = known_data_sources(Path(request.code_path))
    remedy = "set reward_fn_path, or use a data_source that verl knows"
    return [
        dataset_finding(f"{path}, row {number}: verl has no reward function for data_source {source!r}", remedy)
        for source, number in sources.items()
        if names and source not in names and not source.startswith(tuple(prefixes))
    ]


def known_data_sources(code_path: Path) -> tuple[set[str], set[str]]:
    """The names, and prefixes of names, with which verl's default_compute_score compares data_source, if readable."""
    names: set[str] = set()
    prefixes: set[str] = set()
    try:
        tree = ast.parse((code_path / "verl" / "utils" / "reward_score" / "__init__.py").read_text(encoding="utf-8"))
    except (OSError, SyntaxError):
        return names, prefixes
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Name) and node.left.id == "data_source":
            names |= {name for operand in node.comparators for name in string_literals(operand)}
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "data_source.startswith":
            prefixes |= {name for argument in node.args for name in string_literals(argument)}
    return names, prefixes


def string_literals(tree: ast.AST) -> list[str]:
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
