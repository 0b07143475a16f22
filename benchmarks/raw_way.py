"""Compares `cluster_up` with commands over SSH that start the same nodes by hand, for machines.py and processes.py."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from rigs.machines import Rig
from scale import host_task_count, run_playbook
from speed import ROUNDS, measure_seconds, print_row

PLAYBOOKS = Path(__file__).resolve().parents[1] / "playbooks"


def compare(rig: Rig, title: str, raw_up: Callable[[], None], raw_down: Callable[[], None]) -> None:
    """Measure both in turns on the same machines, and print medians and their ratio.

    raw_up, raw_down: start the nodes by hand, and remove them. title: of raw_up in the table.
    """
    raw, ours, again, tasks = [], [], [], 0
    for _ in range(ROUNDS):
        raw.append(measure_seconds(raw_up))
        raw_down()
        ours.append(measure_seconds(lambda: run_playbook(rig, PLAYBOOKS / "cluster_up.yml")))
        start = time.monotonic()
        tasks = host_task_count(run_playbook(rig, PLAYBOOKS / "cluster_up.yml"))
        again.append(time.monotonic() - start)
        run_playbook(rig, PLAYBOOKS / "cluster_down.yml")
    ratio = statistics.median(ours) / statistics.median(raw)
    print_row(title, raw)
    print_row("cluster_up from nothing", ours, f"{ratio:.2f} times the raw commands")
    print_row("cluster_up on the healthy cluster", again, f"{tasks} host-tasks")
