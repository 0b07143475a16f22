# SPDX-License-Identifier: Apache-2.0
"""Checks the lengths of prompts, or of conversations for SFT, with the job's own tokenizer and chat template.

A child process measures a sample of the rows, see child.py: importing transformers takes seconds, and a chat template
may run for ever.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..common.findings import ERROR, WARNING, Finding, about
from ..common.text import one_line
from ..io.reading import UnreadableError, read_text
from .child import ChildProcess
from .dataset import open_parquet
from .job_dataset import data_files, dataset_finding, messages_key
from .request import CheckRequest, Facts

# The limits of the sample of a split: its rows, the characters of their text, and the row groups of a file.
MAX_SAMPLED_ROWS, MAX_SAMPLED_CHARS = 320, 4 << 20
MAX_ROW_GROUPS = 8
# The child measures for so long, after it has imported transformers. Rows that are left are not measured.
MAX_MEASURING_SECONDS = 3.0
PROCESS_TIMEOUT_SECONDS = 15.0
MAX_MEMORY_BYTES = 4 << 30
# Files with these columns are not measured: only a processor knows how many tokens an image has.
MEDIA_COLUMNS = ("images", "videos", "audios")
# Hides torch and others from transformers: importing them would take most of the time.
CHILD_IMPORTS = """
import importlib.util, time
find_spec = importlib.util.find_spec
hidden = {"torch", "torchvision", "torchaudio", "tensorflow", "jax", "scipy", "sklearn", "pandas", "PIL"}
importlib.util.find_spec = lambda name, *more: None if name.split(".")[0] in hidden else find_spec(name, *more)
from transformers import AutoTokenizer
"""
# Measures the rows of `question`, the dict of measure_samples. child.py defines `say`, which sends one line of the
# answer: for each row, its `length` and `max_token_id`, or why the chat template `refused` it.
CHILD_PROGRAM = """
tokenizer = AutoTokenizer.from_pretrained(question["directory"])
arguments = {**question["arguments"], "add_generation_prompt": question["add_generation_prompt"], "tokenize": False}
if question["template"]:
    arguments["chat_template"] = question["template"]
until = time.monotonic() + question["seconds"]

def token_ids(messages):
    return tokenizer(tokenizer.apply_chat_template(messages, **arguments), add_special_tokens=False)["input_ids"]

def message_token_ids(message):
    # verl/utils/tokenizer/chat_template.py: apply_chat_template
    try:
        return token_ids([message])
    except Exception:
        before = [{"role": "user", "content": [{"type": "text", "text": ""}]}]
        return token_ids([*before, message])[len(token_ids(before)):]

def concatenated_token_ids(row):
    # verl/utils/dataset/multiturn_sft_dataset.py: __init__, __getitem__, sanity_check
    user = {"role": "user", "content": ""}
    single, double = token_ids([user]), token_ids([user, user])
    system_length = len(single[:len(single) - len(double)])  # The tokens of the default system prompt.
    ids = []
    for index, message in enumerate(row):
        ids += message_token_ids(message)[0 if message["role"] == "system" or not index else system_length:]
    if ids != token_ids(row) and question["must_match"]:
        raise ValueError("verl renders each message alone, which gives other tokens than the whole conversation; "
                         "data.ignore_input_ids_mismatch=True allows that")
    return ids

for split, rows in question["rows"].items():
    for row in rows:
        if time.monotonic() > until:
            break
        try:
            ids = concatenated_token_ids(row) if question["per_message"] else token_ids(row)
        except Exception as error:
            say(split=split, refused=f"{type(error).__name__}: {error}"[:300])
        else:
            say(split=split, length=len(ids), max_token_id=max(ids, default=0))
"""


@dataclass(frozen=True)
class PromptSample:
    """Conversations from several places of a split, and their measurements."""

    split: str
    rows: tuple[Any, ...]
    total_rows: int  # the number of rows of the whole split
    lengths: tuple[int, ...] = ()  # in tokens, of the rows that the chat template accepts
    max_token_id: int = 0
    refusals: tuple[str, ...] = ()  # why the chat template refuses the other rows

    @property
    def tried_count(self) -> int:
        return len(self.lengths) + len(self.refusals)

    @property
    def longest(self) -> int:
        return max(self.lengths, default=0)


def start_tokenizer_process() -> ChildProcess:
    """Start the process that measures prompts. It imports transformers while the caller continues."""
    return ChildProcess(CHILD_PROGRAM, {"HF_HUB_OFFLINE": "1"}, MAX_MEMORY_BYTES, CHILD_IMPORTS)


def prompt_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    """Findings about prompts that are too long, or that the tokenizer or the model cannot process."""
    limit_key = "data.max_length" if request.is_sft else "data.max_prompt_length"
    limit, tokenizer_dir = request.setting(limit_key), Path(request.tokenizer_path)
    if not isinstance(limit, int) or limit <= 0 or request.setting("data.custom_cls.path"):
        return []
    if not tokenizer_dir.is_absolute() or not (tokenizer_dir / "tokenizer.json").is_file():
        return []
    findings: list[Finding] = []
    samples = [sample for split in request.splits if (sample := read_sample(request, split)).rows]
    for sample in measure_samples(request, tokenizer_dir, samples) if samples else ():
        if sample.tried_count:
            suffix = f", the longest has {sample.longest} tokens of {limit_key} {limit}" if sample.lengths else ""
            facts.notes += [f"Prompts: {len(sample.lengths)} of {sample.total_rows} in {sample.split} measured{suffix}"]
            findings += length_findings(request, sample, limit_key, limit)
            findings += refusal_findings(request, sample)
            findings += vocabulary_findings(sample, facts.vocab_size)
    return findings


def read_sample(request: CheckRequest, split: str) -> PromptSample:
    """Read conversations from all files of a split, and from several row groups of each."""
    from pyarrow import ArrowException

    conversations: list[Any] = []
    total = size = 0
    messages_column = messages_key(request)
    files = [file for file in data_files(request, split) if file.startswith("/") and file.endswith(".parquet")]
    for name in files:
        # The check of the dataset tells why a file cannot be read.
        with contextlib.suppress(OSError, ArrowException), open_parquet(Path(name)) as file:
            if messages_column not in file.schema_arrow.names or set(MEDIA_COLUMNS) & set(file.schema_arrow.names):
                continue
            total += file.metadata.num_rows
            groups = file.metadata.num_row_groups
            group_indexes = sorted({groups * at // MAX_ROW_GROUPS for at in range(MAX_ROW_GROUPS)}) if groups else []
            for index in group_indexes:
                count = -(-MAX_SAMPLED_ROWS // len(files) // len(group_indexes))
                batch = next(file.iter_batches(count, row_groups=[index], columns=[messages_column]), None)
                for messages in filter(None, batch.column(0).to_pylist() if batch else ()):
                    size += len(str(messages))
                    if size <= MAX_SAMPLED_CHARS and len(conversations) < MAX_SAMPLED_ROWS:
                        conversations.append(messages)
    return PromptSample(split, tuple(conversations), total)


def measure_samples(request: CheckRequest, tokenizer_dir: Path, samples: list[PromptSample]) -> Iterator[PromptSample]:
    """The samples with the measurements of the child process."""
    arguments = request.setting("data.apply_chat_template_kwargs")
    enable_thinking = request.setting("data.enable_thinking_default")
    question = {
        "directory": str(tokenizer_dir),
        "template": request.setting(f"{request.model_section}.custom_chat_template"),
        "arguments": {
            **(arguments if isinstance(arguments, dict) else {}),
            **({"enable_thinking": bool(enable_thinking)} if request.is_sft and enable_thinking is not None else {}),
        },
        "add_generation_prompt": not request.is_sft,
        "per_message": request.is_sft and renders_messages_separately(request),
        "must_match": not request.setting("data.ignore_input_ids_mismatch"),
        "seconds": MAX_MEASURING_SECONDS,
        "rows": {sample.split: sample.rows for sample in samples},
    }
    lines = (request.tokenizer_process or start_tokenizer_process()).answer(question, PROCESS_TIMEOUT_SECONDS).lines
    for sample in samples:
        measurements = [line for line in lines if line.get("split") == sample.split]
        lengths = tuple(line["length"] for line in measurements if isinstance(line.get("length"), int))
        ids = [line["max_token_id"] for line in measurements if isinstance(line.get("max_token_id"), int)]
        refusals = tuple(str(line["refused"]) for line in measurements if "refused" in line)
        yield replace(sample, lengths=lengths, max_token_id=max(ids, default=0), refusals=refusals)


def renders_messages_separately(request: CheckRequest) -> bool:
    """Whether the snapshot's dataset for SFT has verl 0.9.1's per-message rendering."""
    with contextlib.suppress(OSError, UnreadableError):
        source = read_text(Path(request.code_path, "verl/utils/dataset/multiturn_sft_dataset.py"))
        return "messages=[message]" in source and "def sanity_check" in source
    return False


def length_findings(request: CheckRequest, sample: PromptSample, limit_key: str, limit: int) -> Iterator[Finding]:
    too_long_count = sum(length > limit for length in sample.lengths)
    if too_long_count:
        outcome, severity = long_prompt_outcome(request, sample, too_long_count)
        sampled = "" if sample.tried_count >= sample.total_rows else "sampled "
        kind = "conversations" if request.is_sft else "prompts"
        share = f"{too_long_count} of {sample.tried_count} {sampled}{kind}"
        problem = f"is {limit}, but {share} in {sample.split} are longer"
        remedy = f"set it to {sample.longest} or more, with the memory that this takes"
        if not request.is_sft:
            remedy += ", or data.filter_overlong_prompts=True to leave them out"
        yield about(limit_key, f"{problem} (the longest has {sample.longest} tokens): {outcome}", remedy, severity)


def long_prompt_outcome(request: CheckRequest, sample: PromptSample, too_long_count: int) -> tuple[str, str]:
    """What verl does with rows that are too long, and the severity of that."""
    truncation = request.setting("data.truncation", "error")
    if request.is_sft:
        # utils/dataset/multiturn_sft_dataset.py: __getitem__, without padding
        ends = truncation == "error"
        outcome = "verl ends at the first (data.truncation: error)" if ends else "verl cuts off their ends"
        return outcome, ERROR if ends else WARNING
    if request.setting("data.filter_overlong_prompts"):
        remaining = sample.tried_count - too_long_count
        batch = request.number("data.train_batch_size", 1)
        if not remaining:
            return "verl drops them all (data.filter_overlong_prompts)", ERROR
        if sample.split == "train" and sample.tried_count >= sample.total_rows and remaining < batch:
            return f"verl drops them, and the {remaining} that are left do not fill a batch of {batch}", ERROR
        return "verl drops them (data.filter_overlong_prompts)", WARNING
    # experimental/agent_loop/agent_loop.py: _cap_text_prompt_length, for any data.truncation
    return "verl cuts off their beginnings, whatever data.truncation is", WARNING


def refusal_findings(request: CheckRequest, sample: PromptSample) -> Iterator[Finding]:
    """Findings about rows that the chat template refuses."""
    if sample.refusals:
        rows = f"{len(sample.refusals)} of {sample.tried_count} rows in {sample.split}"
        text = f"the model's chat template refuses {rows}: {one_line(sample.refusals[0], 300)}"
        # A processor may render them in another way.
        is_certain = not sample.lengths and request.is_text_only
        yield dataset_finding(text, "correct the rows, or the template", ERROR if is_certain else WARNING)


def vocabulary_findings(sample: PromptSample, vocab_size: int | None) -> Iterator[Finding]:
    """Findings about a tokenizer that has more tokens than the model. vocab_size: None if it is unknown."""
    token = sample.max_token_id
    if vocab_size and token >= vocab_size:
        text = f"has vocab_size {vocab_size}, but its tokenizer gives token {token} for a row of {sample.split}"
        yield about("model", text, "use the model's own tokenizer, or resize the model's embeddings to it")
