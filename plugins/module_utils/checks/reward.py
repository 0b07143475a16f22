# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of the gate that looks at the things themselves: data, model, reward, packages and space, on the nodes.

It travels into Ray tasks by value, where there is neither Ansible nor this collection. So it imports nothing of
either, of the image's packages only what a check needs and inside of it, and a finding is a mapping with the keys of
``findings.Finding``. Of data and weights it reads footers, headers and a few rows.

A request is a mapping:

shared_root, workload, code_path, model, dataset: as in the JobSpec; all paths are absolute.
reward: the file and the function, or None.
environment: the environment variables of the job.
files: what has to be there on every node: paths, or a mapping of paths to their sizes on the head (None: any).
accept: checks whose errors the user takes as warnings: "requirements", "space".
config: the composed Hydra configuration of the job, or None when it is not known; then less is checked.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .common import WARNING, finding, has_reward_model, one_line, reward_manager, setting

REWARD_SECONDS = 20
# What they pass, all by name (experimental/reward_loop/reward_manager/*.py: run_single).
REWARD_ARGUMENTS = ("data_source", "solution_str", "ground_truth", "extra_info")
# And when a reward model is on.
REWARD_MODEL_ARGUMENTS = ("reward_router_address", "reward_model_tokenizer")
# The import of verl's utils/import_utils.py: load_module, in a process of its own; what the file prints goes nowhere.
REWARD_PROBE = """
import json, os, sys
answer = os.dup(1)
os.dup2(2, 1)
# Ray's workers do not look into the current directory.
sys.path[:] = [path for path in sys.path if path]
path, function = sys.argv[1:]

def say(**said):
    os.write(answer, json.dumps(said).encode())
    os._exit(0)

import importlib.util, inspect, traceback
spec = importlib.util.spec_from_file_location(f"custom_module_{hash(os.path.abspath(path))}", path)
module = importlib.util.module_from_spec(spec)
try:
    spec.loader.exec_module(module)
except BaseException as error:
    frames = traceback.extract_tb(error.__traceback__)
    line = next((frame.lineno for frame in reversed(frames) if frame.filename == path), None)
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    say(error=f"{type(error).__name__}: {error}", line=line, missing=missing)
if not hasattr(module, function):
    say(functions=[name for name, value in vars(module).items()
                   if inspect.isfunction(value) and value.__module__ == module.__name__])
found = getattr(module, function)
if not callable(found):
    say(type=type(found).__name__)
try:
    signature = inspect.signature(found)
except (TypeError, ValueError):
    say(parameters=None)
say(text=str(signature), is_async=inspect.iscoroutinefunction(found),
    parameters=[[each.name, each.kind.name, each.default is each.empty] for each in signature.parameters.values()])
"""


def reward_findings(request: Mapping[str, Any], facts: dict[str, Any]) -> list[dict[str, str]]:
    if not request.get("reward"):
        return []
    file, function = request["reward"]
    path = Path(file)
    try:
        # Bytes, so that a declared encoding counts.
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except FileNotFoundError:
        return [finding("reward_fn_path", f"{path} is not there", "stage it, or correct reward_fn_path")]
    except (OSError, ValueError) as error:
        return [finding("reward_fn_path", f"{path} is not readable: {one_line(error)}", "correct the file")]
    except SyntaxError as error:
        return [finding("reward_fn_path", f"{path}, line {error.lineno}: {error.msg}", "correct the file")]
    environment = {**os.environ, **{name: str(value) for name, value in (request.get("environment") or {}).items()}}
    try:
        done = subprocess.run(
            # -B: user/code is not ours, and perhaps read-only.
            [sys.executable, "-B", "-c", REWARD_PROBE, str(path), function],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=REWARD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        what = f"{path} is not imported after {REWARD_SECONDS} s, so that its function is not checked"
        todo = "move what takes long from the module into the function: every reward worker imports it"
        return [finding("reward_fn_path", what, todo, WARNING)]
    try:
        said = json.loads(done.stdout)
    except ValueError:
        what = f"{path} ends the process that imports it (exit status {done.returncode})"
        return [finding("reward_fn_path", what, "run it alone on a node, and correct the file")]
    return import_findings(path, function, said) or signature_findings(request, path, function, said)


def import_findings(path: Path, function: str, said: Mapping[str, Any]) -> list[dict[str, str]]:
    where = "reward_fn_path"
    line = f"{path}, line {said['line']}" if said.get("line") else str(path)
    if said.get("missing"):
        top = said["missing"].partition(".")[0]
        if (path.parent / f"{top}.py").is_file() or (path.parent / top).is_dir():
            what = f"{line}: imports {said['missing']}, and verl does not look beside the file"
            return [finding(where, what, f"add env_vars: {{PYTHONPATH: {path.parent}}}")]
        what = f"{line}: imports {said['missing']}, which the workers do not have"
        return [finding(where, what, "add it to the image, or do without it")]
    if "error" in said:
        return [finding(where, f"{line}: its import ends with {one_line(said['error'])}", "correct the file")]
    if "functions" in said:
        has = f"it has: {', '.join(said['functions'])}" if said["functions"] else "it has none"
        return [finding(where, f"{path} has no function {function}; {has}", "correct its name")]
    if "type" in said:
        return [finding(where, f"{path}: {function} is a {said['type']}, not a function", "correct its name")]
    return []


def signature_findings(
    request: Mapping[str, Any], path: Path, function: str, said: Mapping[str, Any]
) -> list[dict[str, str]]:
    """Whether the function takes what verl's own reward managers pass, all of it by name."""
    config = request.get("config")
    if said.get("parameters") is None or reward_manager(request) is None:
        return []
    if said["is_async"] and reward_manager(request) == "remote":
        what = f"{path}: {function} is async, which verl's reward manager remote does not take"
        return [finding("reward_fn_path", what, "make it a plain function, or choose another reward_manager")]
    own = ("reward.custom_reward_function.reward_kwargs", "custom_reward_function.reward_kwargs")
    passed = [*REWARD_ARGUMENTS, *(name for key in own for name in setting(config, key, {}))]
    if has_reward_model(request):
        passed += REWARD_MODEL_ARGUMENTS
    parameters = said["parameters"]
    by_name = [name for name, kind, _dummy in parameters if kind in ("POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY")]
    takes_any = any(kind == "VAR_KEYWORD" for _dummy, kind, _dummy in parameters)
    unknown = [] if takes_any else [name for name in passed if name not in by_name]
    wanting = [
        name
        for name, kind, required in parameters
        if required and not kind.startswith("VAR_") and (name not in passed or kind == "POSITIONAL_ONLY")
    ]
    problems = []
    if unknown:
        problems.append(f"does not take {', '.join(unknown)}, which verl passes by name")
    if wanting:
        problems.append(f"wants {', '.join(wanting)}, which verl does not pass")
    if not problems:
        return []
    what = f"{path}: {function}{said['text']} {', and '.join(problems)}"
    todo = f"make it def {function}(data_source, solution_str, ground_truth, extra_info=None, **kwargs)"
    return [finding("reward_fn_path", what, todo)]
