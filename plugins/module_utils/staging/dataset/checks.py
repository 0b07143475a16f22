# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with the rows of a dataset in verl's form: every row, a batch at a time, column by column.

No row becomes a Python object unless there is something to say of it, so that a million rows take seconds, and of a row
that was looked at eight bytes stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...checks.dataset import ROLES
from ...findings import ERROR, WARNING
from .arrow import Conversations, as_bytes, as_text, fingerprints, is_blank, numbers, repeated
from .schema import MESSAGES, RL, SFT, SPLITS, Array, Batch, is_text

# Prompts with the same text are different ones when what they show is.
MEDIA = ("images", "videos", "audios")
GSM8K = "openai/gsm8k"
# Of each kind of problem.
SHOWN_ROWS = 10
SHOWN_CHARACTERS = 60
# How many conversations are rendered and tokenised at once.
TOKENISED_ROWS = 256


class Tokenizer(Protocol):
    """What is used of a tokenizer of transformers."""

    def apply_chat_template(
        self, conversation: Sequence[Any], *, tokenize: bool, add_generation_prompt: bool
    ) -> list[str]: ...

    def __call__(self, text: list[str], *, add_special_tokens: bool) -> Mapping[str, list[list[int]]]: ...


@dataclass
class Problem:
    """One kind of problem in one split: how many rows have it, and the first of them, each with what is wrong."""

    split: str
    what: str
    severity: str
    count: int = 0
    shown: dict[int, str] = field(default_factory=dict)

    def add(self, rows: Array, values: Array | None) -> None:
        from pyarrow import compute

        # A row may have it in more than one message.
        self.count += len(compute.unique(rows))
        for place, row in enumerate(rows.to_pylist()):
            if len(self.shown) >= SHOWN_ROWS:
                break
            self.shown.setdefault(row, "" if values is None else shown(values[place].as_py()))

    def __str__(self) -> str:
        rows = ", ".join(f"{row} ({value})" if value else str(row) for row, value in self.shown.items())
        more = f" and {self.count - len(self.shown)} more" if self.count > len(self.shown) else ""
        unit = "row" if self.count == 1 else "rows"
        return f"{self.split}: {self.what}: {self.count} {unit}, counted from 0: {rows}{more}"


def shown(value: Any) -> str:
    """A value as text, the beginning of a long one."""
    said = value if isinstance(value, str) else repr(value)
    said = " ".join(said.split()) if said.strip() else repr(said)
    return said if len(said) <= SHOWN_CHARACTERS else said[: SHOWN_CHARACTERS - 1] + "…"


@dataclass(frozen=True)
class Limit:
    """How many tokens a prompt may have, or a conversation of sft, for which model."""

    tokens: int
    tokenizer: Tokenizer


# A mask, and of the same length as it the rows and what is shown of each; what is wrong, and how bad that is.
Found = tuple[Array, Array, Any, str, str]


class Checker:
    """Looks at batch after batch, and knows at the end what is wrong.

    A row is named by its number in its split, or by the number that `look` is given for it.
    """

    def __init__(self, workload: str, limit: Limit | None = None) -> None:
        self.workload = workload
        self.limit = limit
        self.problems: dict[tuple[str, str], Problem] = {}
        self.rows: dict[str, int] = {}
        self.overhead: dict[str, int] = {}
        # Of each split: the rows' numbers where they were given, of whole rows and of prompts the fingerprints.
        self.numbers: dict[str, list[Array]] = {}
        self.seen: dict[str, list[Array]] = {}
        self.prompts: dict[str, list[Array]] = {}

    def errors(self) -> list[str]:
        return [str(problem) for problem in self.problems.values() if problem.severity == ERROR]

    def warnings(self) -> list[str]:
        return [str(problem) for problem in self.problems.values() if problem.severity == WARNING]

    def look(self, split: str, batch: Batch, rows: Array | None = None) -> None:
        """Check a batch of a schema in which schema_problem finds nothing."""
        first = self.rows.get(split, 0)
        self.rows[split] = first + batch.num_rows
        rows = numbers(first, batch.num_rows) if rows is None else rows
        self.numbers.setdefault(split, []).append(rows)
        conversations = Conversations(batch.column(MESSAGES[self.workload]))
        for found in self._message_problems(conversations, rows):
            self.add(split, *found)
        for found in (
            self._sft_problems(conversations, rows)
            if self.workload == SFT
            else self._rl_problems(batch, conversations, rows)
        ):
            self.add(split, *found)
        self._remember(split, batch, conversations)
        if self.limit is not None and is_text(conversations.content.type) and not set(MEDIA) & set(batch.schema.names):
            self._measure(split, conversations, rows, self.limit)

    def add(self, split: str, mask: Array, rows: Array, values: Array | None, what: str, severity: str = ERROR) -> None:
        """Note the rows of a mask: what is wrong with them, and of each what is shown."""
        from pyarrow import compute

        if compute.any(mask).as_py():
            problem = self.problems.setdefault((split, what), Problem(split, what, severity))
            problem.add(rows.filter(mask), None if values is None else values.filter(mask))

    def _message_problems(self, conversations: Conversations, rows: Array) -> Iterator[Found]:
        from pyarrow import compute

        none = compute.equal(conversations.lengths, 0)
        yield none, rows, None, "has no messages", ERROR
        of_message = rows.take(conversations.row)
        wrong = compute.invert(conversations.by(*ROLES))
        yield wrong, of_message, conversations.role, f"has a role that is none of {', '.join(ROLES)}", ERROR
        for severity, roles in ((ERROR, ("user", "assistant")), (WARNING, ("system", "developer"))):
            what = f"has an empty message of {' or '.join(roles)}"
            mask = compute.and_(conversations.empty, conversations.by(*roles))
            yield mask, of_message, conversations.role, what, severity

    def _rl_problems(self, batch: Batch, conversations: Conversations, rows: Array) -> Iterator[Found]:
        from pyarrow import compute

        having, last = conversations.last()
        what = "has a prompt that ends with a message of the assistant, so that nothing is left to answer"
        yield compute.equal(last, "assistant"), rows.take(having), last, what, ERROR
        source = batch.column("data_source")
        what = "has an empty data_source, by which verl chooses the reward function"
        yield is_blank(source), rows, as_text(source), what, ERROR
        reward = batch.column("reward_model")
        truth = compute.struct_field(reward, "ground_truth")
        empty = missing = is_blank(truth) if is_text(truth.type) else compute.is_null(truth)
        if reward.type.get_field_index("style") >= 0:
            # A reward model asks for none.
            style = as_text(compute.struct_field(reward, "style"))
            missing = compute.and_(missing, compute.fill_null(compute.not_equal(style, "model"), True))
        yield missing, rows, truth, "has no reward_model.ground_truth", ERROR
        # utils/reward_score/gsm8k.py: extract_solution takes such a number from an answer, and commas out of it.
        lost = compute.fill_null(compute.equal(as_text(source), GSM8K), False)
        if is_text(truth.type):
            is_number = compute.match_substring_regex(as_text(truth), r"^-?[0-9.]+$")
            lost = compute.and_(lost, compute.invert(compute.fill_null(is_number, False)))
        what = f"has a ground_truth that verl's own reward for {GSM8K} never finds: no number as text without commas"
        yield compute.and_(lost, compute.invert(empty)), rows, truth, what, WARNING

    def _sft_problems(self, conversations: Conversations, rows: Array) -> Iterator[Found]:
        from pyarrow import compute

        having, last = conversations.last()
        answers = compute.and_(conversations.by("assistant"), compute.invert(conversations.empty))
        answered = compute.is_in(having, value_set=compute.unique(conversations.row.filter(answers)).cast(having.type))
        # utils/dataset/multiturn_sft_dataset.py: _process_single_message masks out everybody else.
        what = "has no message of the assistant with content, so that there is nothing to learn"
        yield compute.invert(answered), rows.take(having), last, what, ERROR
        open_end = compute.and_(answered, compute.fill_null(compute.not_equal(last, "assistant"), False))
        what = "goes on after the last message of the assistant, which is not learned"
        yield open_end, rows.take(having), last, what, WARNING

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
            seen = prints(compute.if_else(conversations.by("assistant"), b"", content))
        self.prompts.setdefault(split, []).append(seen)

    def compare(self) -> None:
        """After the last batch: rows that are there more than once."""
        import pyarrow
        from pyarrow import compute

        what = "prompt" if self.workload == RL else "messages"
        named = {split: pyarrow.chunked_array(parts, pyarrow.int64()) for split, parts in self.numbers.items()}
        for split, parts in self.seen.items():
            later, earlier = repeated(pyarrow.chunked_array(parts, pyarrow.int64()))
            rows, values = named[split].take(later), named[split].take(earlier)
            values = compute.binary_join_element_wise("as", values.cast(pyarrow.string()), " ")
            every = pyarrow.chunked_array([pyarrow.repeat(True, len(later))])
            self.add(split, every, rows, values, f"has the same {what} as an earlier row", WARNING)
        train, val = (self.prompts.get(split, []) for split in SPLITS)
        if train and val:
            known = pyarrow.chunked_array(train).combine_chunks()
            both = compute.is_in(pyarrow.chunked_array(val), value_set=known)
            what = "has a prompt that train has as well, so that validation asks for what was trained"
            self.add("val", both, named["val"], None, what, WARNING)

    # --- Length ---

    def _measure(self, split: str, conversations: Conversations, rows: Array, limit: Limit) -> None:
        """Tokenise those that could be too long: a token is at least one byte of the text."""
        import pyarrow
        from pyarrow import compute

        roles = conversations.per_row(conversations.role, b",").cast(pyarrow.string()).dictionary_encode()
        overhead = [self._overhead(each or "", limit) for each in roles.dictionary.to_pylist()]
        overheads = pyarrow.array(overhead, pyarrow.int64()).take(roles.indices)
        suspects = compute.greater(compute.add(conversations.bytes(), overheads), limit.tokens)
        suspects = compute.indices_nonzero(compute.and_(suspects, compute.greater(conversations.lengths, 0)))
        for start in range(0, len(suspects), TOKENISED_ROWS):
            some = suspects.slice(start, TOKENISED_ROWS)
            counts, refusals = self._tokens(conversations.column.take(some).to_pylist(), limit)
            counted = pyarrow.array(counts, pyarrow.int64())
            what = f"is longer than {limit.tokens} tokens, at which verl leaves rows out or stops"
            values = compute.binary_join_element_wise(counted.cast(pyarrow.string()), "tokens", " ")
            self.add(split, compute.greater(counted, limit.tokens), rows.take(some), values, what, WARNING)
            refused = pyarrow.array(refusals, pyarrow.string())
            what = "is refused by the chat template of the model"
            self.add(split, compute.is_valid(refused), rows.take(some), refused, what, WARNING)

    def _overhead(self, roles: str, limit: Limit) -> int:
        """How many bytes the chat template puts around the messages of these roles."""
        if roles not in self.overhead:
            messages = [{"role": role, "content": ""} for role in roles.split(",")]
            try:
                self.overhead[roles] = len(self._render([messages], limit)[0].encode())
            except Exception:
                # It may take them when they have content: every such row is looked at.
                self.overhead[roles] = limit.tokens + 1
        return self.overhead[roles]

    def _render(self, conversations: Sequence[Any], limit: Limit) -> list[str]:
        return limit.tokenizer.apply_chat_template(
            conversations, tokenize=False, add_generation_prompt=self.workload == RL
        )

    def _tokens(
        self, conversations: list[list[Mapping[str, Any]]], limit: Limit
    ) -> tuple[list[int | None], list[str | None]]:
        """How many tokens each has, or why it cannot be told."""
        # Fields that other messages of the dataset have are not there for the template.
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
                    # Templates refuse with errors of all kinds.
                    rendered.append(None)
                    refusals[index] = f"{type(error).__name__}: {error}"
        texts = [text for text in rendered if text is not None]
        lengths = map(len, limit.tokenizer(texts, add_special_tokens=False)["input_ids"] if texts else [])
        return [None if text is None else next(lengths) for text in rendered], refusals
