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

from ansible_collections.argus.verl.plugins.module_utils.findings import ERROR, WARNING
from ansible_collections.argus.verl.plugins.module_utils.node_checks import ROLES

RL, SFT = "rl", "sft"
SPLITS = ("train", "val")
# The column of messages that verl's trainers read.
MESSAGES = {RL: "prompt", SFT: "messages"}
# Prompts with the same text are different ones when what they show is.
MEDIA = ("images", "videos", "audios")
GSM8K = "openai/gsm8k"
# Of each kind of problem.
SHOWN_ROWS = 10
SHOWN_CHARACTERS = 60
# How many conversations are rendered and tokenised at once.
TOKENISED_ROWS = 256

# pyarrow's own types: it is imported where it is used, since only nodes have it.
Array = Any
Batch = Any
Schema = Any


class Tokenizer(Protocol):
    """What is used of a tokenizer of transformers."""

    def apply_chat_template(
        self, conversation: Sequence[Any], *, tokenize: bool, add_generation_prompt: bool
    ) -> list[str]: ...

    def __call__(self, text: list[str], *, add_special_tokens: bool) -> Mapping[str, list[list[int]]]: ...


# --- Schema ----------------------------------------------------------------------------------------------------------


def schema_problem(schema: Schema, workload: str) -> tuple[str, str] | None:
    """What is wrong with the columns, and what to do; None when verl can read them."""
    names, key = schema.names, MESSAGES[workload]
    if key not in names:
        if workload == SFT and {"prompt", "reward_model"} <= set(names):
            return "is a dataset for ppo and grpo (prompt, reward_model), not for sft.", "Set workload to rl."
        if workload == RL and "messages" in names:
            return "is a dataset for sft (messages), not for ppo and grpo.", "Set workload to sft."
        return f"has no column {key}; it has: {', '.join(names)}.", "Say with columns which of them are what."
    kind = schema.field(key).type
    content = content_type(kind)
    if content is None:
        return (
            f"has a column {key} of type {kind}, where verl reads a list of {{role, content}}.",
            f"Name it in columns ({key}: {key}) when it is text, or rename its fields.",
        )
    if not (is_text(content) or is_list(content)):
        return f"has messages with content of type {content}, where verl reads text.", "Write it as text."
    return reward_problem(schema) if workload == RL else None


def reward_problem(schema: Schema) -> tuple[str, str] | None:
    """What is wrong with the columns that a reward is computed from."""
    from pyarrow import types

    for name in ("data_source", "reward_model"):
        if name not in schema.names:
            what = f"has no column {name}, which verl's reward managers read; it has: {', '.join(schema.names)}."
            return what, "Write it in verl's form, or say with columns which of them are what."
    if not is_text(schema.field("data_source").type):
        return f"has a column data_source of type {schema.field('data_source').type}.", "Write it as text."
    kind = schema.field("reward_model").type
    if not (types.is_struct(kind) and kind.get_field_index("ground_truth") >= 0):
        return f"has a column reward_model of type {kind}.", "Give it the form {style: rule, ground_truth: …}."
    if "extra_info" in schema.names:
        kind = schema.field("extra_info").type
        # utils/dataset/rl_dataset.py: __getitem__ calls its get().
        if not (types.is_struct(kind) or types.is_null(kind)):
            return f"has a column extra_info of type {kind}.", "Make it a mapping, or leave it out."
    return None


def content_type(kind: Any) -> Any:
    """The type of the messages' content; None when these are no messages."""
    from pyarrow import types

    if not is_list(kind) or not types.is_struct(kind.value_type):
        return None
    fields = {kind.value_type.field(index).name: index for index in range(kind.value_type.num_fields)}
    return kind.value_type.field(fields["content"]).type if {"role", "content"} <= set(fields) else None


def is_list(kind: Any) -> bool:
    from pyarrow import types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_text(kind: Any) -> bool:
    """Whether all of it is text, or nothing."""
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind) or types.is_null(kind)
    )


# --- Rows ------------------------------------------------------------------------------------------------------------


def as_text(array: Array) -> Array:
    """An array of one of the types of text, whatever it is now."""
    import pyarrow

    kind = array.type
    return array if kind in (pyarrow.string(), pyarrow.large_string()) else array.cast(pyarrow.large_string())


def is_blank(array: Array) -> Array:
    """Which texts are missing, or nothing but white space."""
    from pyarrow import compute

    trimmed = compute.utf8_trim_whitespace(as_text(array))
    return compute.fill_null(compute.equal(compute.binary_length(trimmed), 0), True)


def running(lengths: Array) -> Array:
    """Where each of these parts begins, and the last one ends."""
    import pyarrow
    from pyarrow import compute

    start = pyarrow.array([0], pyarrow.int64())
    return pyarrow.concat_arrays([start, compute.cumulative_sum(lengths.cast(pyarrow.int64()))])


def numbers(start: int, count: int) -> Array:
    import pyarrow

    return pyarrow.array(range(start, start + count), pyarrow.int64())


class Conversations:
    """The messages of a batch, one after the other, and which row each belongs to."""

    def __init__(self, column: Array) -> None:
        import pyarrow
        from pyarrow import compute, types

        if types.is_fixed_size_list(column.type):
            column = column.cast(pyarrow.list_(column.type.value_type))
        self.column = column
        self.lengths = compute.fill_null(compute.list_value_length(column), 0)
        self.offsets = running(self.lengths)
        flat = compute.list_flatten(column)
        self.row = compute.list_parent_indices(column)
        self.role = as_text(compute.struct_field(flat, "role"))
        self.content = compute.struct_field(flat, "content")
        self.empty = is_empty(self.content)
        calls = flat.type.get_field_index("tool_calls")
        if calls >= 0:
            # Who calls a tool may say nothing besides.
            self.empty = compute.and_(self.empty, is_empty(compute.struct_field(flat, "tool_calls")))

    def by(self, *roles: str) -> Array:
        """Which messages are of these roles."""
        import pyarrow
        from pyarrow import compute

        return compute.is_in(self.role, value_set=pyarrow.array(roles, self.role.type))

    def last(self) -> tuple[Array, Array]:
        """The rows that have messages, and the role of the last of each."""
        from pyarrow import compute

        some = compute.greater(self.lengths, 0)
        ends = compute.subtract(self.offsets.slice(1), 1)
        return compute.indices_nonzero(some), self.role.take(ends.filter(some))

    def per_row(self, messages: Array, separator: bytes) -> Array:
        """What there is for each message, joined to one for each row."""
        import pyarrow
        from pyarrow import compute

        filled = compute.fill_null(messages.cast(pyarrow.binary()), b"")
        return compute.binary_join(pyarrow.LargeListArray.from_arrays(self.offsets, filled), separator)

    def bytes(self) -> Array:
        """How long the text of each row is, in UTF-8."""
        from pyarrow import compute

        sums = running(compute.fill_null(compute.binary_length(as_text(self.content)), 0))
        ends = sums.take(self.offsets)
        return compute.subtract(ends.slice(1), ends.slice(0, len(self.lengths)))


def is_empty(array: Array) -> Array:
    """Which contents say nothing, be they text, or a list of parts."""
    from pyarrow import compute

    if is_text(array.type):
        return is_blank(array)
    if is_list(array.type):
        return compute.equal(compute.fill_null(compute.list_value_length(array), 0), 0)
    return compute.is_null(array)


def as_bytes(array: Array) -> Array:
    """Every value of an array of whatever type as bytes, equal for equal values; nothing is like what is empty."""
    import pyarrow
    from pyarrow import compute, types

    kind = array.type
    if is_text(kind):
        values = as_text(array).cast(pyarrow.binary())
    elif is_list(kind):
        if types.is_fixed_size_list(kind):
            array = array.cast(pyarrow.list_(kind.value_type))
        offsets = running(compute.fill_null(compute.list_value_length(array), 0))
        parts = as_bytes(compute.list_flatten(array))
        values = compute.binary_join(pyarrow.LargeListArray.from_arrays(offsets, parts), b"\x1e")
    elif types.is_struct(kind) and kind.num_fields:
        # The order of fields differs between files and means nothing.
        names = sorted(kind.field(index).name for index in range(kind.num_fields))
        fields = [as_bytes(compute.struct_field(array, name)) for name in names]
        values = compute.binary_join_element_wise(*fields, b"\x1f")
    elif types.is_binary(kind) or types.is_large_binary(kind):
        values = array.cast(pyarrow.binary())
    else:
        values = pyarrow.array([repr(value).encode() for value in array.to_pylist()], pyarrow.binary())
    return compute.fill_null(values, b"")


def fingerprints(values: Array) -> Array:
    """64 bits for each, equal for equal ones: of a million different ones two are equal once in 30 million datasets."""
    import pyarrow

    return pyarrow.array(map(hash, values.to_pylist()), pyarrow.int64())


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


def repeated(values: Array) -> tuple[Array, Array]:
    """The places of values that were there before, in order, and of each the place of its first."""
    import pyarrow
    from pyarrow import compute

    none = pyarrow.array([], pyarrow.int64())
    if compute.count_distinct(values).as_py() == len(values):
        return none, none
    first: dict[int, int] = {}
    later, earlier = [], []
    # Only those of which there are more than one.
    counts = compute.value_counts(values)
    many = counts.field("values").filter(compute.greater(counts.field("counts"), 1))
    places = compute.indices_nonzero(compute.is_in(values, value_set=many))
    for place, value in zip(places.to_pylist(), values.take(places).to_pylist(), strict=True):
        if first.setdefault(value, place) != place:
            later.append(place)
            earlier.append(first[value])
    return pyarrow.array(later, pyarrow.int64()), pyarrow.array(earlier, pyarrow.int64())
