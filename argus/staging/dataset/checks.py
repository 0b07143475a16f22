# SPDX-License-Identifier: Apache-2.0
"""Checks every row of a dataset in verl's schema, and collects the problems."""

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
    messages_problem,
    reward_problems,
)
from ...common.findings import ERROR, WARNING
from .rows import Batch, Schema

# Columns of media, and their placeholders in texts.
MEDIA = {"images": "<image>", "videos": "<video>", "audios": "<audio>"}
GSM8K = "openai/gsm8k"
# utils/reward_score/gsm8k.py: extract_solution finds such a number in an answer, and removes its commas.
NUMBER = re.compile(r"-?[0-9.]+")
MAX_LISTED_ROWS = 10
MAX_VALUE_CHARS = 60
Conversation = Sequence[Mapping[str, Any]]


@dataclass
class RowProblem:
    """One kind of problem in one split: how many rows have it, and the first of them with their values."""

    split: str
    text: str
    severity: str
    count: int = 0
    last_row: int = -1
    shown: dict[int, str] = field(default_factory=dict)

    def __str__(self) -> str:
        rows = ", ".join(f"{row} ({value})" if value else str(row) for row, value in self.shown.items())
        more = f" and {self.count - len(self.shown)} more" if self.count > len(self.shown) else ""
        unit = "row" if self.count == 1 else "rows"
        return f"{self.split}: {self.text}: {self.count} {unit}, counted from 0: {rows}{more}"


def value_text(value: object) -> str:
    """A value as text; only the beginning of a long one."""
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split()) if text.strip() else repr(text)
    return text if len(text) <= MAX_VALUE_CHARS else text[: MAX_VALUE_CHARS - 1] + "…"


def schema_problem(schema: Schema, workload: str) -> tuple[str, str] | None:
    """The problem with the columns and its remedy; None if verl can read them."""
    fault = messages_problem(schema, workload, MESSAGES[workload])
    if not fault and workload == SFT and "tools" in schema.names and is_text(kind := schema.field("tools").type):
        # utils/dataset/multiturn_sft_dataset.py passes them on, and transformers takes no text.
        return f"has a column tools of type {kind}, where verl reads a list of objects", "write it as such a list"
    if fault or workload == SFT:
        return fault
    for problem in reward_problems(schema, ("data_source", "reward_model")):
        return problem
    kind = schema.field("data_source").type
    return (
        extra_info_problem(schema)
        if is_text(kind)
        else (f"has a column data_source of type {kind}", "write it as text")
    )


def is_blank(value: object) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


class Checker:
    """Checks batch after batch."""

    def __init__(self, workload: str) -> None:
        self.workload = workload
        self.problems: dict[tuple[str, str], RowProblem] = {}
        # For each split: the first row with a conversation, by its hash, and the hash of each row's prompt.
        self.seen: dict[str, dict[int, int]] = {}
        self.prompts: dict[str, dict[int, int]] = {}

    def errors(self) -> list[str]:
        return [str(problem) for problem in self.problems.values() if problem.severity == ERROR]

    def warnings(self) -> list[str]:
        return [str(problem) for problem in self.problems.values() if problem.severity == WARNING]

    def add(self, split: str, row: int, text: str, value: str = "", severity: str = ERROR) -> None:
        """Adds a problem of a row; once, if more than one of its messages has it."""
        problem = self.problems.setdefault((split, text), RowProblem(split, text, severity))
        if row != problem.last_row:
            problem.count, problem.last_row = problem.count + 1, row
            if len(problem.shown) < MAX_LISTED_ROWS:
                problem.shown[row] = value

    def check(self, split: str, batch: Batch, rows: Sequence[int]) -> None:
        """Checks a batch whose schema has no schema_problem. rows: the numbers by which its rows are named."""
        conversations = [messages or [] for messages in batch.column(MESSAGES[self.workload]).to_pylist()]
        # Prompts with the same text but other media or tools are different prompts.
        beside = {name: batch.column(name).to_pylist() for name in (*MEDIA, "tools") if name in batch.schema.names}
        for index, (row, messages) in enumerate(zip(rows, conversations, strict=True)):
            others = {name: column[index] for name, column in beside.items()}
            self._count_media(split, row, messages, others)
            for severity, problem, role in message_problems(self.workload, messages):
                self.add(split, row, problem, value_text(role) if role else "", severity)
            self._remember(split, row, messages, [*others.values()])
        if self.workload == RL:
            self._check_rewards(split, batch, conversations, rows)

    def _check_rewards(
        self, split: str, batch: Batch, conversations: Sequence[Conversation], rows: Sequence[int]
    ) -> None:
        sources, rewards = batch.column("data_source").to_pylist(), batch.column("reward_model").to_pylist()
        for row, messages, source, reward in zip(rows, conversations, sources, rewards, strict=True):
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

    def _count_media(self, split: str, row: int, messages: Conversation, others: Mapping[str, Any]) -> None:
        """Compares media with their placeholders in texts; _build_messages of verl's datasets asserts this."""
        texts = [text for message in messages if isinstance(text := (message or {}).get("content"), str)]
        for name, sign in MEDIA.items():
            signs, media = sum(text.count(sign) for text in texts), len(others.get(name) or ())
            if texts and signs != media:
                # Without any, verl leaves the text as it is.
                severity = ERROR if media else WARNING
                self.add(split, row, f"has another number of {sign} than of {name}", f"{signs} and {media}", severity)

    def _remember(self, split: str, row: int, messages: Conversation, beside: Sequence[object]) -> None:
        """Finds an equal row. Of a row without a problem, only 64-bit hashes are kept."""
        pairs = [
            (message.get("role"), {name: value for name, value in message.items() if value is not None})
            for message in (message or {} for message in messages)
        ]
        whole = hash(repr((pairs, beside)))
        earlier = self.seen.setdefault(split, {}).setdefault(whole, row)
        if earlier != row:
            problem = f"has the same {'prompt' if self.workload == RL else 'messages'} as an earlier row"
            self.add(split, row, problem, f"as {earlier}", WARNING)
        if self.workload == SFT:
            # The same question with another answer is the same prompt.
            whole = hash(repr(([(role, None if role == "assistant" else message) for role, message in pairs], beside)))
        self.prompts.setdefault(split, {})[row] = whole

    def compare(self) -> None:
        """Finds rows that are in both splits, after the last batch."""
        train_prompts = set(self.prompts.get("train", {}).values())
        for row, prompt in self.prompts.get("val", {}).items():
            if prompt in train_prompts:
                problem = "has a prompt that is also in train, so validation repeats training data"
                self.add("val", row, problem, severity=WARNING)
