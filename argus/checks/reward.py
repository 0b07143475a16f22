# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Checks of the reward function: whether it can be imported, and accepts the arguments that verl passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.findings import ERROR, WARNING, Finding, about
from ..common.text import one_line
from .child import Limits, run_program
from .common import LONGEST_ERROR, CheckRequest, error_text
from .facts import Facts

REWARD_SECONDS = 20.0
LIMITS = Limits(REWARD_SECONDS, memory_bytes=8 << 30)
# What verl's reward managers pass, all by name (experimental/reward_loop/reward_manager/*.py: run_single).
REWARD_ARGUMENTS = ("data_source", "solution_str", "ground_truth", "extra_info")
# What they pass as well if a reward model is enabled.
REWARD_MODEL_ARGUMENTS = ("reward_router_address", "reward_model_tokenizer")
# Imports the file, or the module, as verl's utils/import_utils.py: load_module does.
REWARD_PROBE = """
import importlib, importlib.util, inspect, traceback

def report(**values):
    say(**values)
    os._exit(0)

path, function, name = given["path"], given["function"], given["module"]
try:
    if name:
        module = importlib.import_module(name)
    else:
        spec = importlib.util.spec_from_file_location(f"custom_module_{hash(os.path.abspath(path))}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
except BaseException as error:
    frames = traceback.extract_tb(error.__traceback__)
    line = next((frame.lineno for frame in reversed(frames) if frame.filename == path), None)
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    report(error=f"{type(error).__name__}: {error}", line=line, missing=missing)
found = getattr(module, "__file__", None)
if name and not (found and os.path.realpath(found) == os.path.realpath(path)):
    report(elsewhere=str(found))
if not hasattr(module, function):
    report(functions=[name for name, value in vars(module).items()
                      if inspect.isfunction(value) and value.__module__ == module.__name__])
found = getattr(module, function)
if not callable(found):
    report(type=type(found).__name__)
try:
    signature = inspect.signature(found)
except (TypeError, ValueError):
    report()
report(text=str(signature), is_async=inspect.iscoroutinefunction(found),
       parameters=[[each.name, each.kind.name, each.default is each.empty] for each in signature.parameters.values()])
"""


@dataclass(frozen=True)
class Parameter:
    """A parameter of the reward function; `kind` is the name of its inspect.Parameter.kind."""

    name: str
    kind: str
    required: bool

    @property
    def takes_names(self) -> bool:
        return self.kind in ("POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY")


@dataclass(frozen=True)
class Probed:
    """What REWARD_PROBE reports: why the import failed, what there is instead of the function, or its signature."""

    error: str = ""
    line: int | None = None
    # The module that was not found.
    missing: str | None = None
    # The file that has the module instead.
    elsewhere: str = ""
    functions: tuple[str, ...] | None = None
    type: str = ""
    text: str = ""
    is_async: bool = False
    parameters: tuple[Parameter, ...] | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Probed:
        parameters = values.get("parameters")
        return cls(**{**values, "parameters": parameters and tuple(Parameter(*each) for each in parameters)})


def problem(what: str, todo: str, severity: str = ERROR) -> Finding:
    return about("reward_fn_path", what, todo, severity)


def reward_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    if not request.reward_file:
        return []
    path, function = Path(request.reward_file), request.reward_function
    found = syntax_findings(path)
    if found:
        return found
    given = {"path": str(path), "function": function, "module": request.reward_module}
    answer = run_program(REWARD_PROBE, given, request.environment, LIMITS)
    if answer.status is None:
        what = f"{path} could not be imported within {LIMITS.seconds:g} s, so its function was not checked"
        todo = "move slow code from the module into the function: every reward worker imports the module"
        return [problem(what, todo, WARNING)]
    if not answer.lines:
        what = f"{path}: importing it ends the process (exit status {answer.status})"
        return [problem(what, "run the file on a node, and correct it")]
    probed = Probed.of(answer.lines[-1])
    return import_findings(path, function, probed) or signature_findings(request, path, function, probed)


def syntax_findings(path: Path) -> list[Finding]:
    try:
        # Bytes, so that a declared encoding counts.
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except FileNotFoundError:
        return [problem(f"{path} does not exist", "stage it, or correct reward_fn_path")]
    except (OSError, ValueError) as error:
        return [problem(f"{path} cannot be read: {error_text(error)}", "correct the file")]
    except SyntaxError as error:
        return [problem(f"{path}, line {error.lineno}: {error.msg}", "correct the file")]
    return []


def import_findings(path: Path, function: str, probed: Probed) -> list[Finding]:
    line = f"{path}, line {probed.line}" if probed.line else str(path)
    if probed.missing:
        top = probed.missing.partition(".")[0]
        if (path.parent / f"{top}.py").is_file() or (path.parent / top).is_dir():
            what = f"{line}: imports {probed.missing}, but verl does not search the file's directory"
            return [problem(what, f"set env_vars: {{PYTHONPATH: {path.parent}}}")]
        what = f"{line}: imports {probed.missing}, which the workers do not have"
        return [problem(what, "add it to the image, or remove the import")]
    if probed.error:
        return [problem(f"{line}: the import fails with {one_line(probed.error, LONGEST_ERROR)}", "correct the file")]
    if probed.elsewhere:
        what = f"the module is imported from {probed.elsewhere}, not from {path}: another one has its name"
        return [problem(what, "rename the package or the module")]
    if probed.functions is not None:
        has = f"it has: {', '.join(probed.functions)}" if probed.functions else "it has none"
        return [problem(f"{path} has no function {function}; {has}", "correct the name in reward_fn_path")]
    if probed.type:
        what = f"{path}: {function} is of type {probed.type}, not a function"
        return [problem(what, "correct the name in reward_fn_path")]
    return []


def signature_findings(request: CheckRequest, path: Path, function: str, probed: Probed) -> list[Finding]:
    """Whether the function accepts what verl's own reward managers pass, all of it by name."""
    if probed.parameters is None or request.reward_manager is None:
        return []
    if probed.is_async and request.reward_manager == "remote":
        what = f"{path}: {function} is async, which verl's reward manager remote does not support"
        return [problem(what, "use a plain function, or another reward manager")]
    passed = passed_arguments(request)
    names = [each.name for each in probed.parameters if each.takes_names]
    takes_any = any(each.kind == "VAR_KEYWORD" for each in probed.parameters)
    unknown = [] if takes_any else [name for name in passed if name not in names]
    missing = [
        each.name
        for each in probed.parameters
        if each.required
        and not each.kind.startswith("VAR_")
        and (each.name not in passed or each.kind == "POSITIONAL_ONLY")
    ]
    problems = []
    if unknown:
        problems.append(f"does not accept {', '.join(unknown)}, which verl passes by name")
    if missing:
        problems.append(f"requires {', '.join(missing)}, which verl does not pass")
    if not problems:
        return []
    todo = f"define it as def {function}(data_source, solution_str, ground_truth, extra_info=None, **kwargs)"
    return [problem(f"{path}: {function}{probed.text} {', and '.join(problems)}", todo)]


def passed_arguments(request: CheckRequest) -> list[str]:
    """The names of the arguments that verl passes to the reward function."""
    own = ("reward.custom_reward_function.reward_kwargs", "custom_reward_function.reward_kwargs")
    passed = [*REWARD_ARGUMENTS, *(name for key in own for name in request.setting(key, {}))]
    return passed + list(REWARD_MODEL_ARGUMENTS) if request.has_reward_model else passed
