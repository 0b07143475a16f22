"""Counts tasks times hosts, with skipped ones: these cost the controller nearly as much as those on a machine."""

from __future__ import annotations

from ansible.executor.stats import AggregateStats
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: host_tasks
type: aggregate
short_description: Print the number of host-tasks of a run
"""


class CallbackModule(CallbackBase):  # type: ignore[misc]
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "host_tasks"

    def v2_playbook_on_stats(self, stats: AggregateStats) -> None:
        # Changed and ignored tasks are among the ok ones as well.
        counted = sum(sum(counts.values()) for counts in (stats.ok, stats.failures, stats.dark, stats.skipped))
        self._display.display(f"host-tasks={counted}")
