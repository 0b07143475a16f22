# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A dry call of the reward function: some rows of the dataset, as verl's own reward managers pass them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.findings import WARNING, Finding
from ..common.text import one_line
from .child import Answer, Limits, run_program
from .common import LONGEST_ERROR, CheckRequest
from .dataset import data_files
from .facts import Facts
from .reward import problem

LONGEST_SECONDS = 20.0
LIMITS = Limits(LONGEST_SECONDS, memory_bytes=8 << 30)
# What the function gets as the answer of the model, for each row.
TRUTH, EMPTY = "the ground truth", "an empty text"
SHOWN_RESULTS = 4
# Loads the function as verl's utils/import_utils.py: load_module, and calls it as NaiveRewardManager.run_single does.
PROGRAM = """
import asyncio, importlib, importlib.util, inspect, time, traceback

path, name = given["path"], given["function"]
if path.startswith("pkg://"):
    module = importlib.import_module(path[len("pkg://"):].replace("/", "."))
    path = getattr(module, "__file__", path)
else:
    spec = importlib.util.spec_from_file_location(f"custom_module_{hash(os.path.abspath(path))}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
function = getattr(module, name)
say(ready=True)

async def call(arguments):
    if inspect.iscoroutinefunction(function):
        return await function(**arguments)
    return await asyncio.get_running_loop().run_in_executor(None, lambda: function(**arguments))

def described(result):
    score = result["score"] if isinstance(result, dict) and "score" in result else result
    if isinstance(score, str):
        return {"type": "str"}
    try:
        return {"score": float(score)}
    except Exception:
        return {"type": type(score).__name__}

async def main():
    for number, row in enumerate(given["rows"]):
        for answer, text in enumerate((str(row["ground_truth"]), "")):
            extra = {**row["extra_info"], "num_turns": 2, "rollout_reward_scores": {}}
            arguments = {"data_source": row["data_source"], "solution_str": text, "ground_truth": row["ground_truth"],
                         "extra_info": extra, **given["arguments"]}
            started = time.perf_counter()
            try:
                said = described(await call(arguments))
            except BaseException as error:
                frames = traceback.extract_tb(error.__traceback__)
                line = next((frame.lineno for frame in reversed(frames) if frame.filename == path), None)
                said = {"error": f"{type(error).__name__}: {error}"[:1000], "line": line}
            say(row=number, answer=answer, seconds=time.perf_counter() - started, **said)

asyncio.run(main())
answer.flush()
os._exit(0)
"""


@dataclass(frozen=True)
class Call:
    """One call of the reward function. Either `score` or `problem` says how it ended.

    row: its number in the sample. text: what it got as the answer. line: of the function's file.
    """

    row: int
    text: str
    seconds: float
    score: float | None = None
    problem: str = ""
    line: int | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Call | None:
        """From a line of the answer; None if it is not of that form."""
        row, answer, seconds, line = (values.get(name) for name in ("row", "answer", "seconds", "line"))
        if not isinstance(row, int) or answer not in (0, 1) or not isinstance(seconds, float):
            return None
        score, error = values.get("score"), values.get("error")
        if error is not None:
            what = f"raises {one_line(error, LONGEST_ERROR)}"
        elif not isinstance(score, float):
            what = f"returns a {one_line(values.get('type'), 60)}, which is not a number"
        else:
            what = "" if math.isfinite(score) else f"returns {score}"
        line = line if isinstance(line, int) else None
        return cls(row, (TRUTH, EMPTY)[answer], seconds, None if what else score, what, line)


def trial_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    """How the reward function ends for some rows; only if the job asks for that."""
    if not request.trial_rows or not request.reward_file:
        return []
    if request.reward_manager is None or request.has_reward_model:
        what = (
            "is called with more than the dataset has, by this reward manager or a reward model: check_reward skips it"
        )
        return [problem(what, "set check_reward: 0", WARNING)]
    rows = rows_of(request)
    if not rows:
        return []
    given = {
        "path": f"pkg://{request.reward_module}" if request.reward_module else request.reward_file,
        "function": request.reward_function,
        "arguments": reward_arguments(request),
        "rows": rows,
    }
    answer = run_program(PROGRAM, given, request.environment, LIMITS)
    calls = [call for call in map(Call.of, answer.lines) if call]
    note(facts, calls)
    return [*call_findings(request, calls), *end_findings(request, answer, calls, 2 * len(rows))]


def rows_of(request: CheckRequest) -> list[dict[str, Any]]:
    """The first rows of the training data, with what the function gets of them."""
    from pyarrow import ArrowException, parquet

    names = [request.data_source_key, "reward_model", "extra_info"]
    for file in data_files(request, "train")[:1]:
        try:
            with parquet.ParquetFile(Path(file), buffer_size=1 << 20, pre_buffer=False) as opened:
                columns = [name for name in names if name in opened.schema_arrow.names]
                batch = next(opened.iter_batches(request.trial_rows, columns=columns), None)
        except (OSError, ArrowException):
            # The check of the dataset tells why.
            return []
        return [row_of(request, row) for row in batch.to_pylist()] if batch else []
    return []


def row_of(request: CheckRequest, row: Mapping[str, Any]) -> dict[str, Any]:
    model, extra = row.get("reward_model"), row.get("extra_info")
    return {
        "data_source": row.get(request.data_source_key),
        "ground_truth": model.get("ground_truth") if isinstance(model, dict) else None,
        "extra_info": extra if isinstance(extra, dict) else {},
    }


def reward_arguments(request: CheckRequest) -> dict[str, Any]:
    """What the configuration adds to each call."""
    found: dict[str, Any] = {}
    for section in ("custom_reward_function", "reward.custom_reward_function"):
        own = request.setting(f"{section}.reward_kwargs")
        found |= own if isinstance(own, dict) else {}
    return found


def call_findings(request: CheckRequest, calls: Sequence[Call]) -> Iterator[Finding]:
    """Calls that did not give a number; each kind once."""
    kinds: dict[str, list[Call]] = {}
    for call in calls:
        if call.problem:
            kinds.setdefault(call.problem, []).append(call)
    for what, same in list(kinds.items())[:SHOWN_RESULTS]:
        first = same[0]
        where = f"{request.reward_file}, line {first.line}" if first.line else str(request.reward_file)
        more = f", and in {len(same) - 1} more of {len(calls)} calls" if len(same) > 1 else ""
        tried = f"called for row {first.row} with {first.text} as the answer"
        said = f"{where}: {request.reward_function}, {tried}, {what}{more}"
        yield problem(said, "correct the function: it has to return a number, or a mapping with a score")


def end_findings(request: CheckRequest, answer: Answer, calls: Sequence[Call], asked: int) -> Iterator[Finding]:
    """Why fewer calls have ended than there were."""
    if len(calls) >= asked:
        return
    path, function = request.reward_file, request.reward_function
    done = f"{len(calls)} of {asked} calls of {function} have ended"
    if answer.status is None:
        todo = "make it faster, or lower check_reward if it is meant to be that slow"
        yield problem(f"{path}: {done} within {LIMITS.seconds:g} s", todo, WARNING)
    elif any(line.get("ready") for line in answer.lines):
        what = f"{path}: {function} ends the process (exit status {answer.status}); {done}"
        yield problem(what, "correct the function: it ends verl's reward worker as well")


def note(facts: Facts, calls: Sequence[Call]) -> None:
    """What the calls took and gave, for people."""
    if not calls:
        return
    mean, longest = sum(call.seconds for call in calls) / len(calls), max(call.seconds for call in calls)
    given = []
    for text in (TRUTH, EMPTY):
        scores = [f"{call.score:g}" for call in calls if call.text == text and call.score is not None]
        given.append(f"{', '.join(scores[:SHOWN_RESULTS]) or 'no number'} for {text}")
    took = f"{len(calls)} calls of {1000 * mean:.1f} ms each, the longest {1000 * longest:.1f} ms"
    facts.note(f"Reward: {took}; {'; '.join(given)}")
