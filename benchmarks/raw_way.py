"""Compare `cluster_up` with commands over SSH that start the same nodes by hand, in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path

from rigs.machines import Rig
from scale import ansible, host_tasks
from speed import ROUNDS, timed

PLAYBOOKS = Path(__file__).resolve().parents[1] / "playbooks"


def compare(rig: Rig, title: str, raw_up: Callable[[], None], raw_down: Callable[[], None]) -> None:
    """Measure both on the same machines, and print medians and the ratio. title: of the commands by hand."""
    raw, ours, again, tasks = [], [], [], 0
    for _ in range(ROUNDS):
        raw.append(timed(raw_up))
        raw_down()
        ours.append(timed(lambda: ansible(rig, PLAYBOOKS / "cluster_up.yml")))
        start = time.monotonic()
        tasks = host_tasks(ansible(rig, PLAYBOOKS / "cluster_up.yml"))
        again.append(time.monotonic() - start)
        ansible(rig, PLAYBOOKS / "cluster_down.yml")
    ratio = statistics.median(ours) / statistics.median(raw)
    for name, values, more in (
        (title, raw, ""),
        ("cluster_up from nothing", ours, f"{ratio:.2f} times the raw commands"),
        ("cluster_up on the healthy cluster", again, f"{tasks} host-tasks"),
    ):
        listed = ", ".join(f"{value:.1f}" for value in values)
        print(f"{name:36} {statistics.median(values):6.1f} s   ({listed}) {more}")
