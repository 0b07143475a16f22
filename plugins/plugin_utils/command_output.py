# SPDX-License-Identifier: GPL-3.0-or-later
"""X"""

from __future__ import annotations

import json

from ansible.module_utils.common.text.converters import to_text
from ansible.module_utils.json_utils import _filter_non_json_lines

# A part of a file that is copied has 8 MiB, and Ansible needs six times the size of an answer.
MAX_OUTPUT_BYTES, MAX_ERROR_BYTES = 16 << 20, 1 << 20
# The exit codes of `timeout` for a command that it has ended: one that heeds a signal, and one that does not.
TIMED_OUT = (124, 137)
# Ansible makes variables of facts, of all hosts with run_once, and shows warnings as its own.
ACTED_ON = ("add_group", "add_host", "deprecations", "invocation", "unreachable", "warnings")
# With these prefixes, keys are Ansible's own, or make a value something else than JSON.
PREFIXES = ("ansible_", "_ansible_", "__ansible_")
JOB_ID = "ansible_job_id"


def limited_command(command: str, seconds: int, converses: bool = False, max_bytes: int = MAX_OUTPUT_BYTES) -> str:
    """A command line for a shell that ends a command after a time, and cuts what it prints.

    converses: whether the command waits for an answer to what it prints; otherwise that may come late.
    max_bytes: the limit of what it prints.
    """
    run, head = f"timeout -k 5 {seconds} {command}", "stdbuf -o0 head" if converses else "head"
    outputs = f"{{ {{ {run}; echo $? >&5; }} | {head} -c {max_bytes} >&3; }} 2>&1 | {head} -c {MAX_ERROR_BYTES} >&4"
    return f"exec 3>&1 4>&2; code=$({{ {outputs}; }} 5>&1); exit $code"


def answer_problem(code: int, stdout: bytes, limit: int, took: float) -> str:
    """Why an answer does not count, or nothing."""
    if len(stdout) >= MAX_OUTPUT_BYTES:
        return f"a command has printed more than {MAX_OUTPUT_BYTES >> 20} MiB"
    return f"a command has not ended within {limit} s" if code in TIMED_OUT and took >= limit else ""


def reduced_answer(stdout: bytes) -> bytes:
    """The answer of a module without the keys that Ansible acts on. Other output stays as it is."""
    if b"{" not in stdout:
        return stdout
    try:
        # As Ansible reads it.
        answer = json.loads(_filter_non_json_lines(to_text(stdout, errors="surrogate_then_replace"), True)[0])
    except (ValueError, RecursionError):
        return stdout
    kept = {key: value for key, value in answer.items() if key == JOB_ID or not is_acted_on(key)}
    return stdout if kept == answer else json.dumps(kept).encode()


def is_acted_on(key: str) -> bool:
    return key in ACTED_ON or key.startswith(PREFIXES)
