# SPDX-License-Identifier: GPL-3.0-or-later
"""The JSON with which a subcommand of `argus` (a verb) answers, and the error if it gave no answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import one_line, printable
from ansible_collections.argus.verl.plugins.plugin_utils import streams
from ansible_collections.argus.verl.plugins.plugin_utils.node_command import Node, engine_error

# How Python, Ray and shells say that they could not start a process or a thread.
NO_MORE_PROCESSES = "Resource temporarily unavailable"
# The key of findings about a malformed request.
USAGE_KEY = "usage"


class ProgramError(Exception):
    """The program gave no answer; the message says why.

    may_answer_later: whether a later call may get an answer, as when the engine restarts the node meanwhile.
    """

    def __init__(self, message: str, may_answer_later: bool = False) -> None:
        super().__init__(printable(message))
        self.may_answer_later = may_answer_later


@dataclass(frozen=True)
class Answer:
    """The answer of a verb."""

    # False if the verb refused the request; the findings then say why.
    accepted: bool
    changed: bool
    findings: Sequence[Finding]
    # The keys that the verb documents, without those that Ansible would act on.
    result: Mapping[str, Any]

    @property
    def refusal_text(self) -> str:
        """Why the request was refused."""
        return "; ".join(finding.problem for finding in self.findings)


def parse_answer(node: Node, verb: str, code: int, out: str, stderr: str) -> Answer:
    """The answer in the output of a verb. Raises ProgramError if there is none.

    Jobs can change what comes out of a node, so nothing but the documented keys is read.
    """
    if reason := "" if node.directory else engine_error(node.location, code, out, stderr):
        raise ProgramError(reason, may_answer_later=True)
    try:
        content = json.loads(out)
        findings = [Finding(**finding) for finding in content["findings"]]
        result = {name: value for name, value in content["result"].items() if not streams.is_acted_on(name)}
        changed = content["changed"] is True
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        reason = one_line(stderr) or f"exit code {code}"
        if NO_MORE_PROCESSES in stderr:
            reason = "the node reached its limit of processes and threads"
        # Whatever ends a node ends the program in it, before it has printed anything.
        raise ProgramError(f"argus {verb} on {node.name} gave no answer ({reason})", may_answer_later=not out) from None
    for finding in findings:
        if finding.key == USAGE_KEY:
            # This version never sends such a request, so the other side is of another version.
            remedy = "Its machine may have another version of the program, and cluster_up.yml brings this one"
            raise ProgramError(f"argus {verb} on {node.name}: {finding.problem}. {remedy}")
    return Answer(code == 0, changed, findings, result)


def unreachable_text(error: AnsibleConnectionFailure, node: str) -> str:
    """The message for a node whose machine cannot be reached. The text of the error says what to do."""
    return f"{node} cannot be reached: {one_line(error)}"
