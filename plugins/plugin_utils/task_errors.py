# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The error of a task as text for people: its message once, and what helps to understand it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import nearest, printable, printable_line

COLLECTION = "argus.verl."
# How many lines of the end of each output are shown.
OUTPUT_LINES = 20
# Longer values are shown with -v.
VALUE_LENGTH = 160
# What Ansible puts before a message although the line already says that the task failed.
PREFIX = re.compile(r"\A(?:Task failed: |Action failed: |Unexpected \w+ error: )*")
# Messages that say less than the rest of the result.
OF_MODULE_OUTPUT = ("MODULE FAILURE", "Module result deserialization failed")
CRASH = "Module failed"
TRACEBACK_LINES = 3
OUTPUTS = ("module_stdout", "module_stderr", "stdout", "stderr")
# Parts of results that are shown in another way, or say nothing about an error.
NOT_DETAILS = {
    *OUTPUTS, *("msg", "changed", "failed", "unreachable", "skipped", "censored", "attempts", "item", "results"),
    *("stdout_lines", "stderr_lines", "start", "end", "delta", "failed_when_result", "evaluated_to", "invocation"),
    *("diff", "exception", "warnings", "deprecations", "argument_errors", "argument_spec_data"),
    "validate_args_context",
}  # fmt: skip
# What the validation of a role's variables says of one variable.
WRONG_TYPE = re.compile(
    r"argument '(?P<name>[^']+)' is of type \w+ and we were unable to convert to (?P<type>\w+): .*", re.S
)
# Of a role's variable, or of a module, as ansible.module_utils.common.arg_spec puts it.
UNKNOWN_KEY = re.compile(
    r"(?:Unsupported parameters for \(\S+\) module: )?"
    r"(?P<name>[^,\s]+)\. Supported parameters include: (?P<known>.*?)\.?",
    re.S,
)
ORIGIN = re.compile(r"Origin: (?P<place>(?P<path>[^\n<>]+?):[0-9]+(?::[0-9]+)?)$", re.MULTILINE)

Result = Mapping[str, Any]


def error_text(result: Result, action: str, source: str = "", traceback: str = "") -> str:
    """The message of a failed task, and below it indented lines with what belongs to it.

    result: what the task returned, without its secrets, as callbacks get it.
    action: the full name of its module or action.
    source: where Ansible found the error, as its excerpts begin.
    traceback: if it was recorded.
    """
    if "censored" in result:
        return "the reason is hidden, because the task has no_log"
    if result.get("argument_errors"):
        return argument_errors(result)
    original = str(result.get("msg") or "")
    # Not the module's own message, but that of a template, of a crash or of the connection.
    unexpected = original.startswith(("Task failed", "Unexpected ")) or "module_stderr" in result
    lines = message(original, result).splitlines()
    hidden = ""
    if unexpected or not action.startswith(COLLECTION):
        lines += details(result)
        hidden = "-v shows the whole result" if has_more(result) else ""
    if unexpected and not result.get("unreachable"):
        lines += [*traceback.splitlines()[-TRACEBACK_LINES:], *origin(source)]
        hidden = "-vvv shows its traceback" if CRASH in original or "module_stderr" in result else hidden
    lines += [f"({hidden})"] if hidden else []
    return "\n  ".join(printable(line, lines=False) for line in lines)


def message(text: str, result: Result) -> str:
    text = PREFIX.sub("", text)
    if text.startswith(OF_MODULE_OUTPUT):
        return "the module ended without a result"
    if text:
        return text
    return "failed_when is true" if result.get("failed_when_result") else "it failed without a message"


def argument_errors(result: Result) -> str:
    """A line for each wrong variable of a role."""
    context, found = result.get("validate_args_context") or {}, list(map(str, result["argument_errors"]))
    secret = {name for name, option in (result.get("argument_spec_data") or {}).items() if option.get("no_log")}
    role = f" of role {context['name']}" if context.get("name") else ""
    lines = [f"{len(found)} error{'s'[: len(found) != 1]} in the variables{role}"]
    for error in found:
        wrong = WRONG_TYPE.fullmatch(error)
        unknown = unknown_key(error)
        if unknown:
            error = f"{unknown[0]}: is unknown. {unknown[1]}"
        if wrong:
            error = f"{wrong['name']}: {reason(error, wrong['type'], wrong['name'] in secret)}"
        lines.append(printable(error, lines=False))
    return "\n  ".join(lines)


def unknown_key(error: str) -> tuple[str, str] | None:
    """The unknown key that an error of Ansible is about, and a hint; None if it is another error."""
    match = UNKNOWN_KEY.fullmatch(error)
    if not match:
        return None
    near = nearest(match["name"].rpartition(".")[2], match["known"].split(", "))
    return match["name"], near or f"Known are: {match['known']}"


def reason(error: str, kind: str, is_secret: bool) -> str:
    """Why a value is not of its type, without Ansible's list of all spellings of yes and no."""
    value = re.search(r"The value (?P<value>.{1,80}?) is not a valid", error, re.S)
    shown = f"{value['value']} is not" if value and not is_secret else "is not"
    return f"{shown} a {NAMES_OF_TYPES.get(kind, kind)}"


NAMES_OF_TYPES = {
    "bool": "boolean; give true or false",
    "int": "whole number",
    "float": "number",
    "dict": "mapping",
    "str": "string",
}


def details(result: Result) -> Iterator[str]:
    """The short values of a result, and the ends of what was printed."""
    for name, value in sorted(result.items()):
        if is_detail(name) and value is not None and is_short(value):
            yield f"{name}: {shown_value(value)}"
    for name in OUTPUTS:
        lines = [printable_line(line, colour=False) for line in str(result.get(name) or "").splitlines()]
        if lines:
            cut = len(lines) - OUTPUT_LINES
            yield f"{name}, the last {OUTPUT_LINES} of {len(lines)} lines:" if cut > 0 else f"{name}:"
            yield from (f"  {line}" for line in lines[-OUTPUT_LINES:])


def is_detail(name: str) -> bool:
    return name not in NOT_DETAILS and not name.startswith(("_", "ansible_"))


def is_short(value: object) -> bool:
    return len(shown_value(value)) <= VALUE_LENGTH and (not isinstance(value, (dict, list)) or is_command(value))


def is_command(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def shown_value(value: object) -> str:
    return shlex.join(value) if isinstance(value, list) and is_command(value) else str(value)


def has_more(result: Result) -> bool:
    """Whether something of a result is not shown."""
    outputs = (str(result.get(name) or "") for name in OUTPUTS)
    is_cut = any(len(output.splitlines()) > OUTPUT_LINES for output in outputs)
    return is_cut or any(is_detail(name) and not is_short(value) for name, value in result.items())


def origin(source: str) -> Sequence[str]:
    """The innermost place that Ansible's excerpts name, relative to the current directory."""
    found = [match["place"] for match in ORIGIN.finditer(source)]
    if not found:
        return []
    near = os.path.relpath(found[-1])
    return [f"at {found[-1] if near.startswith('..') else near}"]
