# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: console
type: stdout
short_description: Ansible's output with each error once
version_added: 0.1.0
author: The argus.verl contributors (@argus-verl)
description:
  - Shows what changed and what failed, and what the collection prints, such as tables and the progress of jobs.
  - Shows an error once, as its message, with what a program has printed.
  - Ends with one line, which names the hosts that failed.
  - With C(-v) and more, the output is that of P(ansible.builtin.default#callback).
  - A terminal gets text and colours only. Other control characters are escaped.
options:
  display_ok_hosts:
    description: Whether to show each task that changed nothing.
    type: bool
    default: false
    env: [{name: ANSIBLE_DISPLAY_OK_HOSTS}]
    ini: [{key: display_ok_hosts, section: defaults}]
  display_skipped_hosts:
    description: Whether to show each task that was skipped.
    type: bool
    default: false
    env: [{name: ANSIBLE_DISPLAY_SKIPPED_HOSTS}]
    ini: [{key: display_skipped_hosts, section: defaults}]
  answer:
    description: Whether to show what tasks print and what failed alone, as the command C(argus) does for most verbs.
    type: bool
    default: false
    env: [{name: ARGUS_ANSWER}]
  result_format:
    description: The format of results.
    type: str
    default: yaml
    choices: [json, yaml]
    env: [{name: ANSIBLE_CALLBACK_RESULT_FORMAT}]
    ini: [{key: callback_result_format, section: defaults}]
extends_documentation_fragment:
  - default_callback
  - result_format_callback
requirements:
  - It is set as C(stdout_callback) in the configuration of Ansible.
"""

import gc
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from ansible import constants, context
from ansible.executor.stats import AggregateStats
from ansible.executor.task_result import CallbackTaskResult
from ansible.playbook import Playbook
from ansible.playbook.block import Block
from ansible.playbook.play import Play
from ansible.playbook.task import Task
from ansible.playbook.task_include import TaskInclude
from ansible.plugins.callback.default import CallbackModule as Default
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import printable, printable_line, wrap_line
from ansible_collections.argus.verl.plugins.plugin_utils import reporting

FAILED = "failed"
UNREACHABLE = "unreachable"
# The most failed hosts that the summary names.
MAX_NAMED_HOSTS = 8
# Ansible's prefix of errors that no module returned, such as those of templates.
UNEXPECTED = "Task failed: "
# Ansible's counters in the order of the summary, with the names that they have in it.
COUNTER_NAMES = {
    "ok": "ok", "changed": "changed", "unreachable": "unreachable", "failures": "failed", "rescued": "rescued",
    "ignored": "ignored",
}  # fmt: skip
# The number of new objects after which Python's garbage collector runs, 700 by default. What Ansible has loaded stays
# until it ends, so the collector finds nothing. With fewer of its runs, checking a job takes 12 % less time.
GC_THRESHOLD = 50_000


def is_rescued(task: Task) -> bool:
    """Whether a failure of this task is rescued: a block with a rescue has the task among its tasks."""
    child, parent = task, task._parent
    while parent:
        # A task in the rescue or the always of a block also has it as its parent.
        if isinstance(parent, Block) and parent.rescue and child._uuid in {one._uuid for one in parent.block}:
            return True
        child, parent = parent, parent._parent
    return False


def failure_kind(result: CallbackTaskResult) -> str:
    """How Ansible counts a failure: failed, rescued or ignored."""
    # For `task_fields`, ansible-core 2.21 prints a warning at each failure.
    if result._task_fields.get("ignore_errors"):
        return "ignored"
    return "rescued" if is_rescued(result.task) else FAILED


def without_controls(display: Callable[..., None]) -> Callable[..., None]:
    """Ansible's display function, with control characters escaped."""

    @wraps(display)
    def display_printable(msg: str, *arguments: Any, **options: Any) -> None:
        lines = msg.replace("\r\n", "\n").split("\n")
        display("\n".join(printable_line(line, colour=True) for line in lines), *arguments, **options)

    return display_printable


def error_text(answer: Mapping[str, Any]) -> str:
    """The message of a failed task's result, and below it what its program has printed."""
    message = str(answer.get("msg") or answer.get("censored") or "it failed without a message")
    output = next(filter(None, (answer.get(name) for name in ("module_stderr", "stderr", "stdout"))), "")
    lines = [*message.removeprefix(UNEXPECTED).splitlines(), *str(output).splitlines()]
    return "\n  ".join(printable(line, lines=False) for line in lines if line.strip())


def summary_line(stats: AggregateStats) -> tuple[str, str]:
    """The line with which a run ends, and its colour."""
    hosts = {host: stats.summarize(host) for host in sorted(stats.processed)}
    failed = [host for host, counts in hosts.items() if counts["failures"] or counts["unreachable"]]
    total = {name: sum(counts[key] for counts in hosts.values()) for key, name in COUNTER_NAMES.items()}
    # Programs search for `changed`, to see whether a run changed something.
    counted = " ".join(f"{name}={count}" for name, count in total.items() if count or name == "changed")
    hosts_text = f"{len(hosts)} host{'s'[: len(hosts) != 1]}"
    if failed:
        named = printable(", ".join(failed[:MAX_NAMED_HOSTS]), lines=False)
        more = f" and {len(failed) - MAX_NAMED_HOSTS} more" if len(failed) > MAX_NAMED_HOSTS else ""
        of_all = f"{more} of {hosts_text}" if len(hosts) > 1 else ""
        return f"Failed: {named}{of_all}  {counted}", constants.COLOR_ERROR
    colour = constants.COLOR_CHANGED if total["changed"] else constants.COLOR_OK
    return f"{'Checked' if context.CLIARGS['check'] else 'Done'}: {hosts_text}  {counted}", colour


class CallbackModule(Default):  # type: ignore[misc]
    """With -v, Ansible's default output; without it, the short output that DOCUMENTATION describes."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "argus.verl.console"

    def __init__(self) -> None:
        super().__init__()
        if "display" not in vars(self._display):
            self._display.display = without_controls(self._display.display)
        # The label of the first host that had an error, by the task and the text of the error.
        self._first_labels: dict[tuple[str, str], str] = {}

    def _is_verbose(self) -> bool:
        return bool(self._display.verbosity)

    def _is_answer_only(self) -> bool:
        """Whether plays and tasks are hidden."""
        return bool(self.get_option("answer")) and not self._is_verbose()

    def _print_task_banner(self, task: Task) -> None:
        self._last_task_banner = task._uuid
        if not self._is_answer_only():
            super()._print_task_banner(task)

    def v2_runner_on_failed(self, result: CallbackTaskResult, ignore_errors: bool = False) -> None:
        if self._is_verbose():
            super().v2_runner_on_failed(result, ignore_errors)
        elif not (result.task.loop and "results" in result.result):
            self._show_error(failure_kind(result), result, self.host_label(result))

    def v2_runner_item_on_failed(self, result: CallbackTaskResult) -> None:
        if self._is_verbose():
            super().v2_runner_item_on_failed(result)
            return
        label = f"{self.host_label(result)}, {self._get_item_label(result.result)}"
        self._show_error(failure_kind(result), result, label)

    def v2_runner_on_unreachable(self, result: CallbackTaskResult) -> None:
        if self._is_verbose():
            super().v2_runner_on_unreachable(result)
        else:
            kind = f"{UNREACHABLE}, ignored" if result.task.ignore_unreachable else UNREACHABLE
            self._show_error(kind, result, self.host_label(result))

    def _show_error(self, kind: str, result: CallbackTaskResult, label: str) -> None:
        """Show the error of a host, or of one of its items; if another one had it before, only refer to that one."""
        if self._last_task_banner != result.task._uuid:
            self._print_task_banner(result.task)
        self._handle_warnings(result.result)
        text = error_text(result.result)
        earlier = self._first_labels.setdefault((result.task._uuid, text), label)
        first, *rest = f"{kind}: [{label}]: {text if earlier == label else f'the same as {earlier}'}".split("\n")
        width = reporting.text_width()
        colour = {FAILED: constants.COLOR_ERROR, UNREACHABLE: constants.COLOR_UNREACHABLE}
        self._display.display(
            "\n".join([wrap_line(first, width, "  ") if width else first, *rest]),
            color=colour.get(kind, constants.COLOR_SKIP),
            stderr=self.get_option("display_failed_stderr") and kind in colour,
        )

    def v2_playbook_on_start(self, playbook: Playbook) -> None:
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD, *gc.get_threshold()[1:])
        super().v2_playbook_on_start(playbook)

    def v2_playbook_on_play_start(self, play: Play) -> None:
        if self._is_answer_only():
            self._play = play
        else:
            super().v2_playbook_on_play_start(play)

    def v2_runner_on_ok(self, result: CallbackTaskResult) -> None:
        if self._is_answer_only():
            self._handle_warnings(result.result)
        # The tasks of an included file are shown. That the file was included is not.
        elif self._is_verbose() or not isinstance(result.task, TaskInclude):
            super().v2_runner_on_ok(result)

    def v2_runner_item_on_ok(self, result: CallbackTaskResult) -> None:
        if not self._is_answer_only():
            super().v2_runner_item_on_ok(result)

    def v2_playbook_on_include(self, included_file: Any) -> None:
        if self._is_verbose():
            super().v2_playbook_on_include(included_file)

    def v2_playbook_on_no_hosts_remaining(self) -> None:
        # The errors and the summary tell it.
        if self._is_verbose():
            super().v2_playbook_on_no_hosts_remaining()

    def v2_playbook_on_stats(self, stats: AggregateStats) -> None:
        custom = stats.custom and self.get_option("show_custom_stats")
        if self._is_verbose() or custom:
            super().v2_playbook_on_stats(stats)
            return
        if not self._is_answer_only():
            line, colour = summary_line(stats)
            self._display.display(f"\n{line}", color=colour)
