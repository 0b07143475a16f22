# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits the output of commands in a node, where jobs can change what a module of Ansible answers.

The output is cut and its time limited, and keys on which Ansible would act are removed.
"""

from __future__ import annotations

import json

from ansible.module_utils.common.text.converters import to_text
from ansible.module_utils.json_utils import _filter_non_json_lines

# More than the 8 MiB that file_copy reads at once, and not much more: Ansible needs six times the size of an answer.
MAX_OUTPUT_BYTES, MAX_ERROR_BYTES = 16 << 20, 1 << 20
# The exit codes of `timeout` for a command that it has ended by SIGTERM, and by SIGKILL.
TIMEOUT_EXIT_CODES = (124, 137)
# Keys of an answer on which Ansible acts, as by adding hosts, giving up one, or showing warnings as its own.
ACTED_ON = ("add_group", "add_host", "deprecations", "invocation", "unreachable", "warnings")
# Keys with these prefixes become facts, which with run_once are set on all hosts, or make a value more than JSON.
PREFIXES = ("ansible_", "_ansible_", "__ansible_")
JOB_ID = "ansible_job_id"


def limited_command(command: str, seconds: int, converses: bool = False, max_bytes: int = MAX_OUTPUT_BYTES) -> str:
    """A shell's command line that ends a command after some seconds, and cuts its output.

    converses: whether the command waits for an answer to its output, which then must not be buffered.
    max_bytes: the limit of its standard output.
    """
    run, head = f"timeout -k 5 {seconds} {command}", "stdbuf -o0 head" if converses else "head"
    outputs = f"{{ {{ {run}; echo $? >&5; }} | {head} -c {max_bytes} >&3; }} 2>&1 | {head} -c {MAX_ERROR_BYTES} >&4"
    return f"exec 3>&1 4>&2; code=$({{ {outputs}; }} 5>&1); exit $code"


def limit_problem(code: int, stdout: bytes, seconds: int, took_seconds: float) -> str:
    """Which limit of limited_command() a command has reached, so that its output does not count; "" if none."""
    if len(stdout) >= MAX_OUTPUT_BYTES:
        return f"a command has printed more than {MAX_OUTPUT_BYTES >> 20} MiB"
    return (
        f"a command has not ended within {seconds} s" if code in TIMEOUT_EXIT_CODES and took_seconds >= seconds else ""
    )


def without_keys_acted_on(stdout: bytes) -> bytes:
    """The JSON answer of a module without the keys on which Ansible acts. Other output stays as it is."""
    if b"{" not in stdout:
        return stdout
    try:
        # Ansible finds the JSON in the same way.
        answer = json.loads(_filter_non_json_lines(to_text(stdout, errors="surrogate_then_replace"), True)[0])
    except (ValueError, RecursionError):
        return stdout
    kept = {key: value for key, value in answer.items() if key == JOB_ID or not is_acted_on(key)}
    return stdout if kept == answer else json.dumps(kept).encode()


def is_acted_on(key: str) -> bool:
    return key in ACTED_ON or key.startswith(PREFIXES)
