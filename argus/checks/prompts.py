# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lengths of prompts, or of conversations for SFT, by the job's own tokenizer and chat template."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.findings import ERROR, WARNING, Finding, about
from ..common.text import one_line
from ..launcher.reading import UnreadableError, read_text
from .child import Answer, Limits, run_program
from .common import CheckRequest
from .dataset import data_files, messages_key, problem
from .facts import Facts

# The rows of a split that are measured, from several places of its files, and how much text of them.
SAMPLED_ROWS, SAMPLED_BYTES = 320, 4 << 20
PLACES = 8
# The program stops by itself and says what it has measured until then; before that, it imports transformers.
MEASURING_SECONDS = 3.0
LONGEST_SECONDS = 15.0
LIMITS = Limits(LONGEST_SECONDS, memory_bytes=4 << 30)
MANIFEST_BYTES = 8 << 20
# Rows with these are longer by an amount that only a processor knows.
MEDIA = ("images", "videos", "audios")
TOO_LONG = "is longer than"
# Most of the seconds in which transformers is imported are for torch, which is hidden from it here.
PROGRAM = """
import importlib.util, time
find_spec = importlib.util.find_spec
hidden = {"torch", "torchvision", "torchaudio", "tensorflow", "jax", "scipy", "sklearn", "pandas", "PIL"}
importlib.util.find_spec = lambda name, *more: None if name.split(".")[0] in hidden else find_spec(name, *more)
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained(given["directory"])
arguments = {**given["arguments"], "add_generation_prompt": given["generation"], "tokenize": False}
if given["template"]:
    arguments["chat_template"] = given["template"]
until = time.monotonic() + given["seconds"]
for split, rows in given["rows"].items():
    for row in rows:
        if time.monotonic() > until:
            break
        try:
            text = tokenizer.apply_chat_template(row, **arguments)
        except Exception as error:
            say(split=split, refused=f"{type(error).__name__}: {error}"[:300])
        else:
            say(split=split, length=len(tokenizer(text, add_special_tokens=False)["input_ids"]))
"""


@dataclass(frozen=True)
class Lengths:
    """What was measured of a split: the lengths in tokens, and why the chat template refused other rows."""

    lengths: tuple[int, ...]
    refused: tuple[str, ...]
    total: int

    @property
    def rows(self) -> int:
        return len(self.lengths) + len(self.refused)

    def longer(self, limit: int) -> int:
        return sum(length > limit for length in self.lengths)


def prompt_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    """Prompts that are longer than the job allows. Nothing is measured without a tokenizer.json."""
    key = "data.max_length" if request.is_sft else "data.max_prompt_length"
    limit, directory = request.setting(key), tokenizer_directory(request)
    is_known = isinstance(limit, int) and limit > 0 and not request.setting("data.custom_cls.path")
    if not is_known or not directory or not (Path(directory) / "tokenizer.json").is_file():
        return []
    if staging_measured(request, directory, limit):
        facts.note(f"Prompts: none is longer than {key} {limit}, as measured when the dataset was staged")
        return []
    samples = {split: sample(request, split) for split in ("train", "val")}
    rows = {split: found for split, (found, _total) in samples.items() if found}
    found = []
    for split, measured in measure(request, directory, samples).items() if rows else ():
        if measured.rows:
            longest = f"the longest has {max(measured.lengths, default=0)} tokens of {key} {limit}"
            facts.note(f"Prompts: {measured.rows} of {measured.total} in {split} measured, {longest}")
            found += [*length_findings(request, split, key, limit, measured), *refusals(split, measured)]
    return found


def tokenizer_directory(request: CheckRequest) -> str:
    """The directory of the job's tokenizer; "" for one on the hub."""
    section = "model" if request.is_sft else "actor_rollout_ref.model"
    model = str(request.setting(f"{section}.path", request.model))
    path = str(request.setting(f"{section}.tokenizer_path", model))
    return path if path.startswith("/") else ""


def staging_measured(request: CheckRequest, directory: str, limit: int) -> bool:
    """Whether staging has measured all rows with this tokenizer, and found none that is longer."""
    own = [f"{request.dataset}/{split}.parquet" for split in ("train", "val")]
    if [file for split in ("train", "val") for file in data_files(request, split)] != own:
        return False
    try:
        manifest = json.loads(read_text(Path(request.dataset, "manifest.json"), MANIFEST_BYTES))
        measured, report = manifest["measured"], manifest.get("report") or []
        # A name is that of a staged model.
        model = Path(request.shared_root, "common/models", measured["model"])
        is_short = not any(TOO_LONG in str(line) or "chat template" in str(line) for line in report)
        return bool(model == Path(directory) and measured["max_prompt_length"] <= limit and is_short)
    except (OSError, UnreadableError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def sample(request: CheckRequest, split: str) -> tuple[list[Any], int]:
    """Conversations from several places of a split, and the number of its rows."""
    found: list[Any] = []
    total = size = 0
    files = [file for file in data_files(request, split) if file.startswith("/") and file.endswith(".parquet")]
    for file in files:
        for conversations, rows in samples_of(Path(file), messages_key(request), SAMPLED_ROWS // len(files)):
            total += rows
            for conversation in conversations:
                size += len(str(conversation))
                if size <= SAMPLED_BYTES and len(found) < SAMPLED_ROWS:
                    found.append(conversation)
    return found, total


def samples_of(path: Path, key: str, wanted: int) -> Iterator[tuple[list[Any], int]]:
    """Rows of some row groups of a file, each with the number of rows that they stand for."""
    from pyarrow import ArrowException, parquet

    try:
        with parquet.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False) as file:
            names = file.schema_arrow.names
            if key not in names or set(MEDIA) & set(names):
                return
            yield [], file.metadata.num_rows
            count = file.metadata.num_row_groups
            places = sorted({count * place // PLACES for place in range(PLACES)}) if count else []
            for place in places:
                batches = file.iter_batches(-(-wanted // len(places)), row_groups=[place], columns=[key])
                batch = next(batches, None)
                yield [messages for messages in batch.column(0).to_pylist() if messages] if batch else [], 0
    except (OSError, ArrowException):
        # The check of the dataset tells why.
        return


def measure(request: CheckRequest, directory: str, samples: dict[str, tuple[list[Any], int]]) -> dict[str, Lengths]:
    section = "model" if request.is_sft else "actor_rollout_ref.model"
    arguments = request.setting("data.apply_chat_template_kwargs")
    given = {
        "directory": directory,
        "template": request.setting(f"{section}.custom_chat_template"),
        "arguments": arguments if isinstance(arguments, dict) else {},
        "generation": not request.is_sft,
        "seconds": MEASURING_SECONDS,
        "rows": {split: rows for split, (rows, _total) in samples.items()},
    }
    answer = run_program(PROGRAM, given, {"HF_HUB_OFFLINE": "1"}, LIMITS)
    return {split: lengths_in(answer, split, total) for split, (_rows, total) in samples.items()}


def lengths_in(answer: Answer, split: str, total: int) -> Lengths:
    own = [line for line in answer.lines if line.get("split") == split]
    lengths = [line["length"] for line in own if isinstance(line.get("length"), int)]
    refused = tuple(str(line["refused"]) for line in own if "refused" in line)
    return Lengths(tuple(lengths), refused, total)


def length_findings(request: CheckRequest, split: str, key: str, limit: int, measured: Lengths) -> list[Finding]:
    longer, longest = measured.longer(limit), max(measured.lengths, default=0)
    sampled = "" if measured.rows >= measured.total else "sampled "
    kind = "conversations" if request.is_sft else "prompts"
    if not longer:
        return []
    outcome, severity = fate(request, split, measured, longer)
    what = f"is {limit}, but {longer} of {measured.rows} {sampled}{kind} in {split} are longer"
    what = f"{what} (the longest has {longest} tokens): {outcome}"
    todo = f"set it to {longest} or more, with the memory that this takes"
    if not request.is_sft:
        todo += ", or data.filter_overlong_prompts=True to leave them out"
    return [about(key, what, todo, severity)]


def fate(request: CheckRequest, split: str, measured: Lengths, longer: int) -> tuple[str, str]:
    """What verl does with rows that are too long, and how bad that is."""
    truncation = request.setting("data.truncation", "error")
    if request.is_sft:
        # utils/dataset/multiturn_sft_dataset.py: __getitem__, without padding
        ends = truncation == "error"
        said = "verl ends at the first (data.truncation: error)" if ends else "verl cuts off their ends"
        return said, ERROR if ends else WARNING
    if request.setting("data.filter_overlong_prompts"):
        left = measured.rows - longer
        batch = request.number("data.train_batch_size", 1)
        if not left:
            return "verl drops them all (data.filter_overlong_prompts)", ERROR
        if split == "train" and measured.rows >= measured.total and left < batch:
            return f"verl drops them, and the {left} that are left do not fill a batch of {batch}", ERROR
        return "verl drops them (data.filter_overlong_prompts)", WARNING
    if request.is_since((0, 8)):
        # experimental/agent_loop/agent_loop.py: _cap_text_prompt_length, whatever data.truncation is
        return "verl cuts off their beginnings, whatever data.truncation is", WARNING
    # experimental/agent_loop/agent_loop.py pads to that length, and joins what must have one length.
    return "this verl neither cuts nor drops them, and ends", ERROR


def refusals(split: str, measured: Lengths) -> Sequence[Finding]:
    if not measured.refused:
        return []
    what = f"the model's chat template refuses {len(measured.refused)} of {measured.rows} rows in {split}: "
    return [problem(what + one_line(measured.refused[0], 200), "correct the rows, or the template", WARNING)]
