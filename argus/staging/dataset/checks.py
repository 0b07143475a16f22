# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks every row of a dataset in verl's schema, a batch at a time, column by column.

A row becomes a Python object only if it has a problem, so a million rows take seconds; a checked row takes eight bytes
of memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...checks.conversation import ROLES, UNKNOWN_ROLE_SEVERITY
from ...common.findings import ERROR, WARNING
from .arrow import Conversations, as_bytes, as_text, fingerprints, is_blank, numbers, repeated
from .schema import MESSAGES, RL, SFT, SPLITS, Array, Batch, is_text

# Prompts with the same text but other media are different prompts.
MEDIA = ("images", "videos", "audios")
GSM8K = "openai/gsm8k"
# For each kind of problem.
SHOWN_ROWS = 10
SHOWN_CHARACTERS = 60
# How many conversations are rendered and tokenized at once.
TOKENIZED_ROWS = 256


class Tokenizer(Protocol):
    """The methods of a tokenizer of transformers that are used here."""

    def apply_chat_template(
        self, conversation: Sequence[Any], *, tokenize: bool, add_generation_prompt: bool
    ) -> list[str]: ...

    def __call__(self, text: list[str], *, add_special_tokens: bool) -> Mapping[str, list[list[int]]]: ...


@dataclass(frozen=True)
class Found:
    """Rows with a problem.

    mask: which of the rows have it. rows: the numbers of the rows, as long as the mask. values: what is shown for each
    row, if anything.
    """

    what: str
    mask: Array
    rows: Array
    values: Array | None = None
    severity: str = ERROR


@dataclass
class Problem:
    """One kind of problem in one split: how many rows have it, and the first of them with their values."""

    split: str
    what: str
    severity: str
    count: int = 0
    shown: dict[int, str] = field(default_factory=dict)

    def add(self, rows: Array, values: Array | None) -> None:
        from pyarrow import compute

        # A row may have it in more than one message.
        self.count += len(compute.unique(rows))
        for index, row in enumerate(rows.to_pylist()):
            if len(self.shown) >= SHOWN_ROWS:
                break
            self.shown.setdefault(row, "" if values is None else shown(values[index].as_py()))

    def __str__(self) -> str:
        rows = ", ".join(f"{row} ({value})" if value else str(row) for row, value in self.shown.items())
        more = f" and {self.count - len(self.shown)} more" if self.count > len(self.shown) else ""
        unit = "row" if self.count == 1 else "rows"
        return f"{self.split}: {self.what}: {self.count} {unit}, counted from 0: {rows}{more}"


def shown(value: Any) -> str:
    """A value as text; only the beginning of a long one."""
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split()) if text.strip() else repr(text)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


@dataclass(frozen=True)
class Limit:
    """How many tokens a prompt, or a conversation for SFT, may have for a tokenizer."""

    tokens: int
    tokenizer: Tokenizer


class Checker:
    """Checks batch after batch, and collects the problems.

    A row is named by its number in its split, or by the number that `check` gets for it.
    """

    def __init__(self, workload: str, limit: Limit | None = None) -> None:
        self.workload = workload
        self.limit = limit
        self.problems: dict[tuple[str, str], Problem] = {}
        self.rows: dict[str, int] = {}
        self.overhead: dict[str, int] = {}
        # For each split: the numbers of the rows, and the fingerprints of whole rows and of prompts.
        self.numbers: dict[str, list[Array]] = {}
        self.seen: dict[str, list[Array]] = {}
        self.prompts: dict[str, list[Array]] = {}

    def errors(self) -> list[str]:
        return [str(problem) for problem in self.problems.values() if problem.severity == ERROR]

    def warnings(self) -> list[str]:
        return [str(problem) for problem in self.problems.values() if problem.severity == WARNING]

    def check(self, split: str, batch: Batch, rows: Array | None = None) -> None:
        """Checks a batch whose schema has no schema_problem."""
        first = self.rows.get(split, 0)
        self.rows[split] = first + batch.num_rows
        rows = numbers(first, batch.num_rows) if rows is None else rows
        self.numbers.setdefault(split, []).append(rows)
        conversations = Conversations(batch.column(MESSAGES[self.workload]))
        for found in self._message_problems(conversations, rows):
            self.add(split, found)
        for found in (
            self._sft_problems(conversations, rows)
            if self.workload == SFT
            else self._rl_problems(batch, conversations, rows)
        ):
            self.add(split, found)
        self._remember(split, batch, conversations)
        if self.limit is not None and is_text(conversations.content.type) and not set(MEDIA) & set(batch.schema.names):
            self._measure(split, conversations, rows, self.limit)

    def add(self, split: str, found: Found) -> None:
        """Adds rows with a problem, if there are any."""
        from pyarrow import compute

        if compute.any(found.mask).as_py():
            problem = self.problems.setdefault((split, found.what), Problem(split, found.what, found.severity))
            values = None if found.values is None else found.values.filter(found.mask)
            problem.add(found.rows.filter(found.mask), values)

    def _message_problems(self, conversations: Conversations, rows: Array) -> Iterator[Found]:
        from pyarrow import compute

        yield Found("has no messages", compute.equal(conversations.lengths, 0), rows)
        of_message, role = rows.take(conversations.row), conversations.role
        unknown = compute.invert(conversations.has_role(*ROLES))
        if compute.any(unknown).as_py():
            missing = is_blank(role)
            yield Found("has a message without a role", missing, of_message)
            what = f"has a role that is none of {', '.join(ROLES)}"
            unknown = compute.and_(unknown, compute.invert(missing))
            yield Found(what, unknown, of_message, role, UNKNOWN_ROLE_SEVERITY)
        for severity, roles in ((ERROR, ("user", "assistant")), (WARNING, ("system", "developer"))):
            mask = compute.and_(conversations.empty, conversations.has_role(*roles))
            yield Found(f"has an empty {' or '.join(roles)} message", mask, of_message, role, severity)

    def _rl_problems(self, batch: Batch, conversations: Conversations, rows: Array) -> Iterator[Found]:
        from pyarrow import compute

        having, last = conversations.last()
        what = "has a prompt that ends with an assistant message, so there is nothing to answer"
        yield Found(what, compute.equal(last, "assistant"), rows.take(having), last)
        source = batch.column("data_source")
        what = "has an empty data_source, by which verl selects the reward function"
        yield Found(what, is_blank(source), rows, as_text(source))
        reward = batch.column("reward_model")
        truth = compute.struct_field(reward, "ground_truth")
        empty = missing = is_blank(truth) if is_text(truth.type) else compute.is_null(truth)
        if reward.type.get_field_index("style") >= 0:
            # A reward model does not need it.
            style = as_text(compute.struct_field(reward, "style"))
            missing = compute.and_(missing, compute.fill_null(compute.not_equal(style, "model"), True))
        yield Found("has no reward_model.ground_truth", missing, rows, truth)
        # utils/reward_score/gsm8k.py: extract_solution finds such a number in an answer, and removes its commas.
        lost = compute.fill_null(compute.equal(as_text(source), GSM8K), False)
        if is_text(truth.type):
            is_number = compute.match_substring_regex(as_text(truth), r"^-?[0-9.]+$")
            lost = compute.and_(lost, compute.invert(compute.fill_null(is_number, False)))
        what = f"has a ground_truth that verl's reward function for {GSM8K} never matches: not a number without commas"
        yield Found(what, compute.and_(lost, compute.invert(empty)), rows, truth, WARNING)

    def _sft_problems(self, conversations: Conversations, rows: Array) -> Iterator[Found]:
        from pyarrow import compute

        having, last = conversations.last()
        answers = compute.and_(conversations.has_role("assistant"), compute.invert(conversations.empty))
        answered = compute.is_in(having, value_set=compute.unique(conversations.row.filter(answers)).cast(having.type))
        # utils/dataset/multiturn_sft_dataset.py: _process_single_message masks out all other roles.
        what = "has no assistant message with content, so there is nothing to learn"
        yield Found(what, compute.invert(answered), rows.take(having), last)
        open_end = compute.and_(answered, compute.fill_null(compute.not_equal(last, "assistant"), False))
        what = "has messages after the last assistant message, which are not learned"
        yield Found(what, open_end, rows.take(having), last, WARNING)

    # --- Equal rows ---

    def _remember(self, split: str, batch: Batch, conversations: Conversations) -> None:
        import pyarrow
        from pyarrow import compute

        media = [as_bytes(batch.column(name)) for name in MEDIA if name in batch.schema.names]
        role = conversations.role.cast(pyarrow.binary())

        def prints(content: Array) -> Array:
            messages = compute.binary_join_element_wise(compute.fill_null(role, b""), content, b"\x1f")
            whole = conversations.per_row(messages, b"\x1e")
            return fingerprints(compute.binary_join_element_wise(whole, *media, b"\x1d") if media else whole)

        content = as_bytes(conversations.content)
        seen = prints(content)
        self.seen.setdefault(split, []).append(seen)
        if self.workload == SFT:
            # The same question with another answer is the same prompt.
            seen = prints(compute.if_else(conversations.has_role("assistant"), b"", content))
        self.prompts.setdefault(split, []).append(seen)

    def compare(self) -> None:
        """Finds equal rows, after the last batch."""
        import pyarrow
        from pyarrow import compute

        what = "prompt" if self.workload == RL else "messages"
        named = {split: pyarrow.chunked_array(parts, pyarrow.int64()) for split, parts in self.numbers.items()}
        for split, parts in self.seen.items():
            later, earlier = repeated(pyarrow.chunked_array(parts, pyarrow.int64()))
            rows, values = named[split].take(later), named[split].take(earlier)
            values = compute.binary_join_element_wise("as", values.cast(pyarrow.string()), " ")
            every = pyarrow.chunked_array([pyarrow.repeat(True, len(later))])
            self.add(split, Found(f"has the same {what} as an earlier row", every, rows, values, WARNING))
        train, val = (self.prompts.get(split, []) for split in SPLITS)
        if train and val:
            known = pyarrow.chunked_array(train).combine_chunks()
            both = compute.is_in(pyarrow.chunked_array(val), value_set=known)
            what = "has a prompt that is also in train, so validation repeats training data"
            self.add("val", Found(what, both, named["val"], severity=WARNING))

    # --- Length ---

    def _measure(self, split: str, conversations: Conversations, rows: Array, limit: Limit) -> None:
        """Tokenizes the rows that could be too long: a token is at least one byte of the text."""
        import pyarrow
        from pyarrow import compute

        roles = conversations.per_row(conversations.role, b",").cast(pyarrow.string()).dictionary_encode()
        overhead = [self._overhead(each or "", limit) for each in roles.dictionary.to_pylist()]
        overheads = pyarrow.array(overhead, pyarrow.int64()).take(roles.indices)
        suspects = compute.greater(compute.add(conversations.bytes(), overheads), limit.tokens)
        suspects = compute.indices_nonzero(compute.and_(suspects, compute.greater(conversations.lengths, 0)))
        for start in range(0, len(suspects), TOKENIZED_ROWS):
            some = suspects.slice(start, TOKENIZED_ROWS)
            counts, refusals = self._tokens(conversations.column.take(some).to_pylist(), limit)
            counted = pyarrow.array(counts, pyarrow.int64())
            what = f"is longer than {limit.tokens} tokens, so verl drops the row or stops"
            values = compute.binary_join_element_wise(counted.cast(pyarrow.string()), "tokens", " ")
            is_long = compute.greater(counted, limit.tokens)
            self.add(split, Found(what, is_long, rows.take(some), values, WARNING))
            refused = pyarrow.array(refusals, pyarrow.string())
            what = "is rejected by the model's chat template"
            self.add(split, Found(what, compute.is_valid(refused), rows.take(some), refused, WARNING))

    def _overhead(self, roles: str, limit: Limit) -> int:
        """How many bytes the chat template adds to messages of these roles."""
        if roles not in self.overhead:
            messages = [{"role": role, "content": ""} for role in roles.split(",")]
            try:
                self.overhead[roles] = len(self._render([messages], limit)[0].encode())
            except Exception:
                # It may accept them with content: every such row is tokenized.
                self.overhead[roles] = limit.tokens + 1
        return self.overhead[roles]

    def _render(self, conversations: Sequence[Any], limit: Limit) -> list[str]:
        return limit.tokenizer.apply_chat_template(
            conversations, tokenize=False, add_generation_prompt=self.workload == RL
        )

    def _tokens(
        self, conversations: list[list[Mapping[str, Any]]], limit: Limit
    ) -> tuple[list[int | None], list[str | None]]:
        """How many tokens each conversation has, or why that is not known."""
        # The template must not see fields that only other messages of the dataset have.
        plain = [
            [{name: value for name, value in (message or {}).items() if value is not None} for message in conversation]
            for conversation in conversations
        ]
        rendered: list[str | None] = []
        refusals: list[str | None] = [None] * len(plain)
        try:
            rendered += self._render(plain, limit)
        except Exception:
            for index, conversation in enumerate(plain):
                try:
                    rendered += self._render([conversation], limit)
                except Exception as error:
                    # Templates raise errors of all kinds.
                    rendered.append(None)
                    refusals[index] = f"{type(error).__name__}: {error}"
        texts = [text for text in rendered if text is not None]
        lengths = map(len, limit.tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else [])
        return [None if text is None else next(lengths) for text in rendered], refusals
