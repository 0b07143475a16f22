# SPDX-License-Identifier: Apache-2.0
"""Checks the reward function of a job: it can be imported, and accepts the arguments that verl passes.

With check_reward, it is also called for some rows of the dataset, as verl's own reward managers call it. Both happen in
a child process, see child.py.
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
from .child import ProgramOutput, run_program
from .job_dataset import data_files, first_rows
from .request import MAX_ERROR_CHARS, CheckRequest, Facts

IMPORT_TIMEOUT_SECONDS, CALLS_TIMEOUT_SECONDS = 20.0, 20.0
MAX_MEMORY_BYTES = 8 << 30
# verl's reward managers pass these by name (experimental/reward_loop/reward_manager/*.py: run_single).
REWARD_ARGUMENTS = ("data_source", "solution_str", "ground_truth", "extra_info")
# With a reward model, they pass these as well.
REWARD_MODEL_ARGUMENTS = ("reward_router_address", "reward_model_tokenizer")
# What the function gets in place of a model's answer: each row is tried with both.
ANSWERS = ("the ground truth", "an empty text")
MAX_LISTED_RESULTS = 4
REGISTERED_MANAGER = re.compile(r"@register\w*\([\"'](\w+)")
finding = partial(about, "reward_fn_path")
CORRECT_NAME = "correct the name in reward_fn_path"
# Loads the file or the module as verl's utils/import_utils.py: load_module does, and says what is wrong with it in one
# line. Then it calls the function as NaiveRewardManager.run_single does, and says a line for each call: see Call. The
# keys of `question` are those in reward_findings.
CHILD_PROGRAM = """
import asyncio, importlib, importlib.util, inspect, math, time, traceback

path, name = question["path"], question["function"]

def end(**values):
    say(**values)
    os._exit(0)

def line_of(error):
    if isinstance(error, SyntaxError) and error.filename == path:
        return error.lineno
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame.lineno for frame in reversed(frames) if frame.filename == path), None)

try:
    if question["module"]:
        module = importlib.import_module(question["module"])
    else:
        spec = importlib.util.spec_from_file_location(f"custom_module_{hash(os.path.abspath(path))}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
except BaseException as error:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    end(error=f"{type(error).__name__}: {error}", line=line_of(error), missing=missing)
file = getattr(module, "__file__", None)
if question["module"] and not (file and os.path.realpath(file) == os.path.realpath(path)):
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
        signature.bind(**dict.fromkeys(question["passed"]))
        say(is_async=is_async)
    except TypeError as error:
        say(is_async=is_async, mismatch=f"{signature}: {error}")
except (TypeError, ValueError):
    say(is_async=is_async)

async def call(arguments):
    if is_async:
        return await function(**arguments)
    return await asyncio.get_running_loop().run_in_executor(None, lambda: function(**arguments))

def score_result(result):
    score = result["score"] if isinstance(result, dict) and "score" in result else result
    try:
        number = math.nan if isinstance(score, str) else float(score)
    except Exception:
        number = math.nan
    if math.isfinite(number):
        return {"score": number}
    value = score if isinstance(score, float) else f"a {type(score).__name__}, which is not a number"
    return {"problem": f"returns {value}"}

async def main():
    for number, row in enumerate(question["rows"]):
        for answer, text in zip(question["answers"], (str(row["ground_truth"]), "")):
            extra = {**row["extra_info"], "num_turns": 2, "rollout_reward_scores": {}}
            arguments = {**row, "solution_str": text, "extra_info": extra, **question["arguments"]}
            started = time.perf_counter()
            try:
                outcome = score_result(await call(arguments))
            except BaseException as error:
                outcome = {"problem": f"raises {type(error).__name__}: {error}"[:1000], "line": line_of(error)}
            say(row=number, answer=answer, seconds=time.perf_counter() - started, **outcome)

asyncio.run(main())
answer.flush()
os._exit(0)
"""


class Call(BaseModel, frozen=True, strict=True):
    """One call of the reward function."""

    row: int  # the index of the row among those that are tried
    answer: Literal["the ground truth", "an empty text"]  # what the function got as the model's answer: one of ANSWERS
    seconds: float
    score: float | None = None  # the result; None if there is a problem
    problem: str = ""
    line: int | None = None  # the line of the function's file that raised, if it is known


def reward_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    """Findings about the reward manager and the reward function, and a note with the scores that it gives."""
    findings = manager_findings(request)
    if not request.reward_file:
        return findings
    path, function = Path(request.reward_file), request.reward_function
    # Managers of users call the function differently.
    passed = passed_arguments(request) if request.per_sample_reward_manager else ()
    is_tried = request.trial_rows > 0 and bool(passed) and not request.has_reward_model
    if request.trial_rows and not is_tried:
        problem = (
            "is called with more than the dataset has, by this reward manager or a reward model: check_reward skips it"
        )
        findings.append(finding(problem, "set check_reward: 0", WARNING))
    rows = trial_rows(request) if is_tried else []
    question = {
        "path": str(path),
        "function": function,
        "module": request.reward_module,
        "passed": passed,
        "arguments": reward_arguments(request),
        "answers": ANSWERS,
        "rows": rows,
    }
    seconds = IMPORT_TIMEOUT_SECONDS + (CALLS_TIMEOUT_SECONDS if rows else 0)
    answer = run_program(CHILD_PROGRAM, question, request.environment, seconds, MAX_MEMORY_BYTES)
    if not answer.lines:
        if answer.status is None:
            problem = f"{path} could not be imported within {seconds:g} s, so its function was not checked"
            return [*findings, finding(problem, "make the import fast: every reward worker imports it", WARNING)]
        problem = f"{path}: importing it ends the process (exit status {answer.status})"
        return [*findings, finding(problem, "run the file on a node, and correct it")]
    findings += import_findings(request, path, answer.lines[0], is_checked=bool(passed))
    calls = [call for line in answer.lines[1:] if (call := parse_call(line))]
    if not findings and rows:
        add_note(facts, calls)
        findings += [*call_findings(request, calls), *unfinished_call_findings(request, answer, calls, 2 * len(rows))]
    return findings


def manager_findings(request: CheckRequest) -> list[Finding]:
    """A finding about a manager that trainer/ppo/reward.py: resolve_reward_manager_cls does not find."""
    manager, code = request.registered_reward_manager, Path(request.code_path, "verl")
    files = [*code.glob("experimental/reward_loop/reward_manager/*.py")]
    files += [] if request.verl_at_least((0, 9)) else code.glob("workers/reward_manager/*.py")
    managers = sorted({name for file in files for name in REGISTERED_MANAGER.findall(file.read_text(encoding="utf-8"))})
    if manager is None or manager in managers or "naive" not in managers:
        return []
    problem = f"is {manager}, which this verl does not have; it has: {', '.join(managers)}"
    return [about("reward.reward_manager.name", problem, "set it to one of these")]


def import_findings(request: CheckRequest, path: Path, reply: Mapping[str, Any], is_checked: bool) -> Iterator[Finding]:
    """Findings about a function that cannot be imported, or cannot be called as verl does."""
    function = request.reward_function
    line = f"{path}, line {reply['line']}" if reply.get("line") else str(path)
    if missing := reply.get("missing"):
        top = str(missing).partition(".")[0]
        if (path.parent / f"{top}.py").is_file() or (path.parent / top).is_dir():
            text = f"{line}: imports {missing}, but verl does not search the file's directory"
            yield finding(text, f"set env_vars: {{PYTHONPATH: {path.parent}}}")
        else:
            text = f"{line}: imports {missing}, which the workers do not have"
            yield finding(text, "add it to the image, or remove the import")
    elif "error" in reply:
        yield finding(f"{line}: the import fails with {one_line(reply['error'], MAX_ERROR_CHARS)}", "correct the file")
    elif "elsewhere" in reply:
        text = f"the module is imported from {reply['elsewhere']}, not from {path}: another one has its name"
        yield finding(text, "rename the package or the module")
    elif "functions" in reply:
        has = f"it has: {', '.join(reply['functions'])}" if reply["functions"] else "it has none"
        yield finding(f"{path} has no function {function}; {has}", CORRECT_NAME)
    elif "type" in reply:
        yield finding(f"{path}: {function} is of type {reply['type']}, not a function", CORRECT_NAME)
    elif reply.get("is_async") and request.per_sample_reward_manager == "remote":
        text = f"{path}: {function} is async, which verl's reward manager remote does not support"
        yield finding(text, "use a plain function, or another reward manager")
    elif is_checked and "mismatch" in reply:
        text = f"{path}: {function} does not accept what verl passes by name ({', '.join(passed_arguments(request))})"
        remedy = f"define it as def {function}(data_source, solution_str, ground_truth, extra_info=None, **kwargs)"
        yield finding(f"{text}: {function}{one_line(reply['mismatch'], MAX_ERROR_CHARS)}", remedy)


def passed_arguments(request: CheckRequest) -> list[str]:
    """The names of the arguments that verl passes to the reward function."""
    passed = [*REWARD_ARGUMENTS, *reward_arguments(request)]
    return passed + list(REWARD_MODEL_ARGUMENTS) if request.has_reward_model else passed


def reward_arguments(request: CheckRequest) -> dict[str, Any]:
    """The arguments that the configuration adds to each call."""
    arguments: dict[str, Any] = {}
    for section in ("custom_reward_function", "reward.custom_reward_function"):
        kwargs = request.setting(f"{section}.reward_kwargs")
        arguments |= kwargs if isinstance(kwargs, dict) else {}
    return arguments


def trial_rows(request: CheckRequest) -> list[dict[str, Any]]:
    """The first rows of the training data, with the columns that the function gets."""
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


def parse_call(line: Mapping[str, Any]) -> Call | None:
    try:
        return Call(**line)
    except ValidationError:
        return None


def call_findings(request: CheckRequest, calls: Sequence[Call]) -> Iterator[Finding]:
    """Findings about calls that returned no number, each kind once, and about scores that are all 0."""
    kinds: dict[str, list[Call]] = {}
    for call in calls:
        if call.problem:
            kinds.setdefault(one_line(call.problem, MAX_ERROR_CHARS), []).append(call)
    for text, same in list(kinds.items())[:MAX_LISTED_RESULTS]:
        first = same[0]
        where = f"{request.reward_file}, line {first.line}" if first.line else str(request.reward_file)
        more = f", and in {len(same) - 1} more of {len(calls)} calls" if len(same) > 1 else ""
        tried = f"called for row {first.row} with {first.answer} as the answer"
        remedy = "correct the function: it has to return a number, or a mapping with a score"
        yield finding(f"{where}: {request.reward_function}, {tried}, {text}{more}", remedy)
    of_truth, of_nothing = ([call.score for call in calls if call.answer == answer] for answer in ANSWERS)
    if calls and of_truth == of_nothing and set(of_truth) == {0}:
        text = f"{request.reward_file}: {request.reward_function} gives 0 for each ground truth, as for an empty text"
        yield finding(text, "compare the form of answers that it expects with reward_model.ground_truth", WARNING)


def unfinished_call_findings(
    request: CheckRequest, answer: ProgramOutput, calls: Sequence[Call], expected_count: int
) -> Iterator[Finding]:
    """Findings about calls that did not end, because they are slow or end the process."""
    if len(calls) >= expected_count:
        return
    path, function = request.reward_file, request.reward_function
    done = f"{len(calls)} of {expected_count} calls of {function} have ended"
    if answer.status is None:
        remedy = "make it faster, or lower check_reward if it is meant to be that slow"
        yield finding(f"{path}: {done} within {CALLS_TIMEOUT_SECONDS:g} s", remedy, WARNING)
    else:
        problem = f"{path}: {function} ends the process (exit status {answer.status}); {done}"
        yield finding(problem, "correct the function: it ends verl's reward worker as well")


def add_note(facts: Facts, calls: Sequence[Call]) -> None:
    """Add a note on the duration and the scores of the calls, for people."""
    if not calls:
        return
    mean, longest = sum(call.seconds for call in calls) / len(calls), max(call.seconds for call in calls)
    results = []
    for answer in ANSWERS:
        scores = [f"{call.score:g}" for call in calls if call.answer == answer and call.score is not None]
        results.append(f"{', '.join(scores[:MAX_LISTED_RESULTS]) or 'no number'} for {answer}")
    took = f"{len(calls)} calls of {1000 * mean:.1f} ms each, the longest {1000 * longest:.1f} ms"
    facts.notes.append(f"Reward: {took}; {'; '.join(results)}")
