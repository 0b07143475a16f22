# SPDX-License-Identifier: Apache-2.0
"""Checks of the reward function: whether it can be imported, and accepts the arguments that verl passes.

With check_reward it is also called for some rows of the dataset, as verl's own reward managers do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from ..common.findings import WARNING, Finding, about
from ..common.text import one_line
from .child import Answer, run_program
from .common import LONGEST_ERROR, CheckRequest, Facts
from .dataset import data_files, first_rows

IMPORT_SECONDS, CALLS_SECONDS = 20.0, 20.0
MEMORY_BYTES = 8 << 30
# What verl's reward managers pass, all by name (experimental/reward_loop/reward_manager/*.py: run_single).
REWARD_ARGUMENTS = ("data_source", "solution_str", "ground_truth", "extra_info")
# What they pass as well if a reward model is enabled.
REWARD_MODEL_ARGUMENTS = ("reward_router_address", "reward_model_tokenizer")
# What the function gets as the answer of the model, for each row.
ANSWERS = ("the ground truth", "an empty text")
SHOWN_RESULTS = 4
REGISTERED = re.compile(r"@register\w*\([\"'](\w+)")
problem = partial(about, "reward_fn_path")
CORRECT_NAME = "correct the name in reward_fn_path"
# Loads the file, or the module, as verl's utils/import_utils.py: load_module does, and calls the function as
# NaiveRewardManager.run_single does.
PROGRAM = """
import asyncio, importlib, importlib.util, inspect, math, time, traceback

path, name = given["path"], given["function"]

def end(**values):
    say(**values)
    os._exit(0)

def line_of(error):
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if frame.filename == path), None)

try:
    if given["module"]:
        module = importlib.import_module(given["module"])
    else:
        spec = importlib.util.spec_from_file_location(f"custom_module_{hash(os.path.abspath(path))}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
except BaseException as error:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    end(error=f"{type(error).__name__}: {error}", line=line_of(error), missing=missing)
file = getattr(module, "__file__", None)
if given["module"] and not (file and os.path.realpath(file) == os.path.realpath(path)):
    end(elsewhere=str(file))
if not hasattr(module, name):
    end(functions=[other for other, value in vars(module).items()
                   if inspect.isfunction(value) and value.__module__ == module.__name__])
function = getattr(module, name)
if not callable(function):
    end(type=type(function).__name__)
is_async = inspect.iscoroutinefunction(function)
try:
    signature = inspect.signature(function)
    try:
        signature.bind(**dict.fromkeys(given["passed"]))
        say(is_async=is_async)
    except TypeError as error:
        say(is_async=is_async, mismatch=f"{signature}: {error}")
except (TypeError, ValueError):
    say(is_async=is_async)

async def call(arguments):
    if is_async:
        return await function(**arguments)
    return await asyncio.get_running_loop().run_in_executor(None, lambda: function(**arguments))

def judged(result):
    score = result["score"] if isinstance(result, dict) and "score" in result else result
    try:
        number = math.nan if isinstance(score, str) else float(score)
    except Exception:
        number = math.nan
    if math.isfinite(number):
        return {"score": number}
    what = score if isinstance(score, float) else f"a {type(score).__name__}, which is not a number"
    return {"problem": f"returns {what}"}

async def main():
    for number, row in enumerate(given["rows"]):
        for answer, text in zip(given["answers"], (str(row["ground_truth"]), "")):
            extra = {**row["extra_info"], "num_turns": 2, "rollout_reward_scores": {}}
            arguments = {**row, "solution_str": text, "extra_info": extra, **given["arguments"]}
            started = time.perf_counter()
            try:
                outcome = judged(await call(arguments))
            except BaseException as error:
                outcome = {"problem": f"raises {type(error).__name__}: {error}"[:1000], "line": line_of(error)}
            say(row=number, answer=answer, seconds=time.perf_counter() - started, **outcome)

asyncio.run(main())
answer.flush()
os._exit(0)
"""


class Call(BaseModel, frozen=True, strict=True):
    """One call of the reward function. Either `score` or `problem` says how it ended.

    row: its number in the sample. answer: what stood for the model's answer. line: of the function's file.
    """

    row: int
    answer: Literal["the ground truth", "an empty text"]
    seconds: float
    score: float | None = None
    problem: str = ""
    line: int | None = None


def reward_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    found = manager_findings(request)
    if not request.reward_file:
        return found
    path, function = Path(request.reward_file), request.reward_function
    # Other managers than verl's own call the function differently.
    passed = passed_arguments(request) if request.reward_manager else ()
    is_tried = request.trial_rows > 0 and bool(passed) and not request.has_reward_model
    if request.trial_rows and not is_tried:
        what = (
            "is called with more than the dataset has, by this reward manager or a reward model: check_reward skips it"
        )
        found.append(problem(what, "set check_reward: 0", WARNING))
    rows = trial_rows(request) if is_tried else []
    given = {
        "path": str(path),
        "function": function,
        "module": request.reward_module,
        "passed": passed,
        "arguments": reward_arguments(request),
        "answers": ANSWERS,
        "rows": rows,
    }
    seconds = IMPORT_SECONDS + (CALLS_SECONDS if rows else 0)
    answer = run_program(PROGRAM, given, request.environment, seconds, MEMORY_BYTES)
    if not answer.lines:
        if answer.status is None:
            what = f"{path} could not be imported within {seconds:g} s, so its function was not checked"
            return [*found, problem(what, "make the import fast: every reward worker imports it", WARNING)]
        what = f"{path}: importing it ends the process (exit status {answer.status})"
        return [*found, problem(what, "run the file on a node, and correct it")]
    found += import_findings(request, path, answer.lines[0], is_checked=bool(passed))
    calls = [call for line in answer.lines[1:] if (call := call_of(line))]
    if not found and rows:
        note(facts, calls)
        found += [*call_findings(request, calls), *end_findings(request, answer, calls, 2 * len(rows))]
    return found


def manager_findings(request: CheckRequest) -> list[Finding]:
    """A reward manager that the snapshot does not have: trainer/ppo/reward.py: resolve_reward_manager_cls."""
    asked, code = request.registered_manager, Path(request.code_path, "verl")
    files = [*code.glob("experimental/reward_loop/reward_manager/*.py")]
    files += [] if request.is_since((0, 9)) else code.glob("workers/reward_manager/*.py")
    known = sorted({name for file in files for name in REGISTERED.findall(file.read_text(encoding="utf-8"))})
    if asked is None or asked in known or "naive" not in known:
        return []
    what = f"is {asked}, which this verl does not have; it has: {', '.join(known)}"
    return [about("reward.reward_manager.name", what, "set it to one of these")]


def import_findings(request: CheckRequest, path: Path, said: Mapping[str, Any], is_checked: bool) -> Iterator[Finding]:
    """Why the function cannot be imported, or cannot be called as verl does. said: the first line of the program."""
    function = request.reward_function
    line = f"{path}, line {said['line']}" if said.get("line") else str(path)
    if missing := said.get("missing"):
        top = str(missing).partition(".")[0]
        if (path.parent / f"{top}.py").is_file() or (path.parent / top).is_dir():
            what = f"{line}: imports {missing}, but verl does not search the file's directory"
            yield problem(what, f"set env_vars: {{PYTHONPATH: {path.parent}}}")
        else:
            what = f"{line}: imports {missing}, which the workers do not have"
            yield problem(what, "add it to the image, or remove the import")
    elif "error" in said:
        yield problem(f"{line}: the import fails with {one_line(said['error'], LONGEST_ERROR)}", "correct the file")
    elif "elsewhere" in said:
        what = f"the module is imported from {said['elsewhere']}, not from {path}: another one has its name"
        yield problem(what, "rename the package or the module")
    elif "functions" in said:
        has = f"it has: {', '.join(said['functions'])}" if said["functions"] else "it has none"
        yield problem(f"{path} has no function {function}; {has}", CORRECT_NAME)
    elif "type" in said:
        yield problem(f"{path}: {function} is of type {said['type']}, not a function", CORRECT_NAME)
    elif said.get("is_async") and request.reward_manager == "remote":
        what = f"{path}: {function} is async, which verl's reward manager remote does not support"
        yield problem(what, "use a plain function, or another reward manager")
    elif is_checked and "mismatch" in said:
        what = f"{path}: {function} does not accept what verl passes by name ({', '.join(passed_arguments(request))})"
        todo = f"define it as def {function}(data_source, solution_str, ground_truth, extra_info=None, **kwargs)"
        yield problem(f"{what}: {function}{one_line(said['mismatch'], LONGEST_ERROR)}", todo)


def passed_arguments(request: CheckRequest) -> list[str]:
    """The names of the arguments that verl passes to the reward function."""
    passed = [*REWARD_ARGUMENTS, *reward_arguments(request)]
    return passed + list(REWARD_MODEL_ARGUMENTS) if request.has_reward_model else passed


def reward_arguments(request: CheckRequest) -> dict[str, Any]:
    """What the configuration adds to each call."""
    found: dict[str, Any] = {}
    for section in ("custom_reward_function", "reward.custom_reward_function"):
        own = request.setting(f"{section}.reward_kwargs")
        found |= own if isinstance(own, dict) else {}
    return found


def trial_rows(request: CheckRequest) -> list[dict[str, Any]]:
    """The first rows of the training data, with what the function gets of them."""
    columns = [request.data_source_key, "reward_model", "extra_info"]
    files = data_files(request, "train")
    rows = []
    for row in first_rows(Path(files[0]), columns, request.trial_rows) if files else []:
        model, extra = row.get("reward_model"), row.get("extra_info")
        rows.append(
            {
                "data_source": row.get(request.data_source_key),
                "ground_truth": model.get("ground_truth") if isinstance(model, dict) else None,
                "extra_info": extra if isinstance(extra, dict) else {},
            }
        )
    return rows


def call_of(line: Mapping[str, Any]) -> Call | None:
    try:
        return Call(**line)
    except ValidationError:
        return None


def call_findings(request: CheckRequest, calls: Sequence[Call]) -> Iterator[Finding]:
    """Calls that did not give a number; each kind once."""
    kinds: dict[str, list[Call]] = {}
    for call in calls:
        if call.problem:
            kinds.setdefault(one_line(call.problem, LONGEST_ERROR), []).append(call)
    for what, same in list(kinds.items())[:SHOWN_RESULTS]:
        first = same[0]
        where = f"{request.reward_file}, line {first.line}" if first.line else str(request.reward_file)
        more = f", and in {len(same) - 1} more of {len(calls)} calls" if len(same) > 1 else ""
        tried = f"called for row {first.row} with {first.answer} as the answer"
        todo = "correct the function: it has to return a number, or a mapping with a score"
        yield problem(f"{where}: {request.reward_function}, {tried}, {what}{more}", todo)
    of_truth, of_nothing = ([call.score for call in calls if call.answer == answer] for answer in ANSWERS)
    if calls and of_truth == of_nothing and set(of_truth) == {0}:
        what = f"{request.reward_file}: {request.reward_function} gives 0 for each ground truth, as for an empty text"
        yield problem(what, "compare the form of answers that it expects with reward_model.ground_truth", WARNING)


def end_findings(request: CheckRequest, answer: Answer, calls: Sequence[Call], asked: int) -> Iterator[Finding]:
    """Why fewer calls have ended than there were."""
    if len(calls) >= asked:
        return
    path, function = request.reward_file, request.reward_function
    done = f"{len(calls)} of {asked} calls of {function} have ended"
    if answer.status is None:
        todo = "make it faster, or lower check_reward if it is meant to be that slow"
        yield problem(f"{path}: {done} within {CALLS_SECONDS:g} s", todo, WARNING)
    else:
        what = f"{path}: {function} ends the process (exit status {answer.status}); {done}"
        yield problem(what, "correct the function: it ends verl's reward worker as well")


def note(facts: Facts, calls: Sequence[Call]) -> None:
    """What the calls took and gave, for people."""
    if not calls:
        return
    mean, longest = sum(call.seconds for call in calls) / len(calls), max(call.seconds for call in calls)
    given = []
    for answer in ANSWERS:
        scores = [f"{call.score:g}" for call in calls if call.answer == answer and call.score is not None]
        given.append(f"{', '.join(scores[:SHOWN_RESULTS]) or 'no number'} for {answer}")
    took = f"{len(calls)} calls of {1000 * mean:.1f} ms each, the longest {1000 * longest:.1f} ms"
    facts.notes.append(f"Reward: {took}; {'; '.join(given)}")
