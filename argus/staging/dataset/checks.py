# SPDX-License-Identifier: Apache-2.0
"""Checks the schema and every row of a dataset in verl's form, before it is staged, and collects the problems."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...checks.dataset import (
    MESSAGES,
    RL,
    SFT,
    extra_info_problem,
    is_text,
    message_problems,
    messages_column_problem,
    reward_problems,
)
from ...common.findings import ERROR, WARNING
from .rows import Batch, Schema

# Columns of media, and the placeholder in texts for each item of them.
PLACEHOLDERS = {"images": "<image>", "videos": "<video>", "audios": "<audio>"}
GSM8K = "openai/gsm8k"
# utils/reward_score/gsm8k.py: extract_solution finds such a number in an answer, and removes its commas.
NUMBER = re.compile(r"-?[0-9.]+")
MAX_LISTED_ROWS = 10
MAX_VALUE_CHARS = 60
Conversation = Sequence[Mapping[str, Any]]


@dataclass
class RowProblem:
    """A problem that rows of one split have."""

    split: str
    text: str
    severity: str  # ERROR or WARNING
    row_count: int = 0
    last_row: int = -1
    # The numbers of the first rows with the problem, each with the value that has it, or "".
    shown: dict[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        rows = ", ".join(f"{row} ({value})" if value else str(row) for row, value in self.shown.items())
        more = f" and {self.row_count - len(self.shown)} more" if self.row_count > len(self.shown) else ""
        unit = "row" if self.row_count == 1 else "rows"
        return f"{self.split}: {self.text}: {self.row_count} {unit}, counted from 0: {rows}{more}"


def value_text(value: object) -> str:
    """A value as text; only the beginning of a long one."""
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split()) if text.strip() else repr(text)
    return text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 1] + "…"


def schema_problem(schema: Schema, workload: str) -> tuple[str, str] | None:
    """The first problem with the columns, and its remedy; None if verl can read them."""
    if problem_and_remedy := messages_column_problem(schema, workload, MESSAGES[workload]):
        return problem_and_remedy
    if workload == SFT and "tools" in schema.names and is_text(arrow_type := schema.field("tools").type):
        # utils/dataset/multiturn_sft_dataset.py passes them on, and transformers takes no text.
        return f"has a column tools of type {arrow_type}, where verl reads a list of objects", "write it as such a list"
    if workload == SFT:
        return None
    if problem_and_remedy := next(reward_problems(schema, ("data_source", "reward_model")), None):
        return problem_and_remedy
    arrow_type = schema.field("data_source").type
    if not is_text(arrow_type):
        return f"has a column data_source of type {arrow_type}", "write it as text"
    return extra_info_problem(schema)


def is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


class RowChecker:
    """Checks the rows of a dataset, batch after batch. It keeps the problems, and two hashes for each row."""

    def __init__(self, workload: str) -> None:
        self.workload = workload
        self.problems: dict[tuple[str, str], RowProblem] = {}
        self.first_row_by_hash: dict[str, dict[int, int]] = {}  # by split, then by the hash of a conversation
        self.prompt_hash_by_row: dict[str, dict[int, int]] = {}  # by split, then by row

    def errors(self) -> list[str]:
        return [str(problem) for problem in self.problems.values() if problem.severity == ERROR]

    def warnings(self) -> list[str]:
        return [str(problem) for problem in self.problems.values() if problem.severity == WARNING]

    def add(self, split: str, row: int, text: str, value: str = "", severity: str = ERROR) -> None:
        """Adds a problem of a row; only once if several messages of the row have it."""
        problem = self.problems.setdefault((split, text), RowProblem(split, text, severity))
        if row != problem.last_row:
            problem.row_count, problem.last_row = problem.row_count + 1, row
            if len(problem.shown) < MAX_LISTED_ROWS:
                problem.shown[row] = value

    def check(self, split: str, batch: Batch, row_numbers: Sequence[int]) -> None:
        """Checks a batch whose schema has no schema_problem. row_numbers: by which problems name the rows."""
        conversations = [messages or [] for messages in batch.column(MESSAGES[self.workload]).to_pylist()]
        # Prompts with the same text but other media or tools are different prompts.
        columns = {
            name: batch.column(name).to_pylist() for name in (*PLACEHOLDERS, "tools") if name in batch.schema.names
        }
        for index, (row, messages) in enumerate(zip(row_numbers, conversations, strict=True)):
            media_and_tools = {name: column[index] for name, column in columns.items()}
            self._compare_placeholders(split, row, messages, media_and_tools)
            for severity, problem, role in message_problems(self.workload, messages):
                self.add(split, row, problem, value_text(role) if role else "", severity)
            self._compare_with_earlier_rows(split, row, messages, [*media_and_tools.values()])
        if self.workload == RL:
            self._check_rl_rows(split, batch, conversations, row_numbers)

    def _check_rl_rows(
        self, split: str, batch: Batch, conversations: Sequence[Conversation], row_numbers: Sequence[int]
    ) -> None:
        """Checks each row for reinforcement learning: the end of the prompt, the data_source and the ground truth."""
        sources, rewards = batch.column("data_source").to_pylist(), batch.column("reward_model").to_pylist()
        for row, messages, source, reward in zip(row_numbers, conversations, sources, rewards, strict=True):
            if messages and (messages[-1] or {}).get("role") == "assistant":
                problem = "has a prompt that ends with an assistant message, so there is nothing to answer"
                self.add(split, row, problem, "assistant")
            if is_blank(source):
                problem = "has an empty data_source, by which verl selects the reward function"
                self.add(split, row, problem, value_text(source))
            truth = (reward or {}).get("ground_truth")
            if is_blank(truth):
                # A reward model does not need it.
                if (reward or {}).get("style") != "model":
                    self.add(split, row, "has no reward_model.ground_truth", value_text(truth))
            elif source == GSM8K and not (isinstance(truth, str) and NUMBER.fullmatch(truth)):
                problem = f"has a ground_truth that verl's reward function for {GSM8K} never matches: "
                self.add(split, row, f"{problem}not a number without commas", value_text(truth), WARNING)

    def _compare_placeholders(self, split: str, row: int, messages: Conversation, media: Mapping[str, Any]) -> None:
        """The texts need a placeholder for each of the row's media: _build_messages of verl's datasets asserts that."""
        texts = [text for message in messages if isinstance(text := (message or {}).get("content"), str)]
        for name, placeholder in PLACEHOLDERS.items():
            count, media_count = sum(text.count(placeholder) for text in texts), len(media.get(name) or ())
            if texts and count != media_count:
                # Without media, verl leaves the text as it is.
                severity = ERROR if media_count else WARNING
                problem = f"has another number of {placeholder} than of {name}"
                self.add(split, row, problem, f"{count} and {media_count}", severity)

    def _compare_with_earlier_rows(
        self, split: str, row: int, messages: Conversation, media_and_tools: Sequence[object]
    ) -> None:
        """Warns of an earlier row that is equal, and keeps the hashes of this row."""
        pairs = [
            (message.get("role"), {name: value for name, value in message.items() if value is not None})
            for message in (message or {} for message in messages)
        ]
        row_hash = hash(repr((pairs, media_and_tools)))
        earlier = self.first_row_by_hash.setdefault(split, {}).setdefault(row_hash, row)
        if earlier != row:
            problem = f"has the same {'prompt' if self.workload == RL else 'messages'} as an earlier row"
            self.add(split, row, problem, f"as {earlier}", WARNING)
        if self.workload == SFT:
            # The same question with another answer is the same prompt.
            prompt = [(role, None if role == "assistant" else message) for role, message in pairs]
            row_hash = hash(repr((prompt, media_and_tools)))
        self.prompt_hash_by_row.setdefault(split, {})[row] = row_hash

    def compare_splits(self) -> None:
        """Warns of prompts that are in both splits. To be called after the last batch."""
        train_prompts = set(self.prompt_hash_by_row.get("train", {}).values())
        for row, prompt in self.prompt_hash_by_row.get("val", {}).items():
            if prompt in train_prompts:
                problem = "has a prompt that is also in train, so validation repeats training data"
                self.add("val", row, problem, severity=WARNING)
