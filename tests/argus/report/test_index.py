"""The list of jobs as a page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from argus.archive.archive import Archive
from argus.evidence import hardware
from argus.evidence.hardware import Measurement, Usage
from argus.report.index import read_rows, render_index
from argus.report.page import write_page

from .conftest import FAILED, GRPO, HOSTILE, RETRIED

Jobs = Callable[[str], Archive]
NOW = 1795350000.0
NODES: list[dict[str, Any]] = [
    {"node_name": "gpu-1", "state": "ALIVE", "resources_total": {"GPU": 8, "CPU": 96}},
    {"node_name": "gpu-2", "state": "ALIVE", "draining": True, "resources_total": {"GPU": 8}},
    {"node_name": "gpu-3", "state": "DEAD", "resources_total": {"GPU": 8}},
]


def made(jobs: Path, bad: dict[str, Any] | None = None) -> str:
    return render_index(read_rows(jobs), NODES, bad or {}, jobs.parent, NOW)


def test_a_row_for_each_job_and_what_the_nodes_do(jobs: Jobs) -> None:
    archive = jobs(GRPO)
    write_page(archive)
    running = jobs(RETRIED)
    running.write_json("status.json", running.status_json() | {"state": "RUNNING", "ended_at": None, "closed_at": None})
    hardware.append(running, Measurement(NOW, {"gpu-1": Usage()}))
    text = made(archive.jobs, {"gpu-2": ["sft-7", "grpo-9"], "gpu-1": [HOSTILE]})
    assert f'<a href="{GRPO}/report.html">{GRPO}</a>' in text and f">{FAILED}</td>" in text
    assert "▁" in text and "critic/" not in text
    shown = " ".join(re.sub(r"<[^>]+>", " ", text[text.index("<h2>Nodes") : text.index("<footer>")]).split())
    assert f"gpu-1 alive CPU 96, GPU 8 {RETRIED} lost under" in shown and "<img" not in text
    assert "gpu-2 draining CPU 0, GPU 8 - lost under sft-7, grpo-9" in shown and "gpu-3" not in shown
    assert re.search(r"GPU-hours of the last 7 days .* - idle 2\d\d\d", shown)
    young = [{**node, "start_time_ms": (NOW - 1800) * 1000} for node in NODES]
    page = render_index(read_rows(archive.jobs), young, {}, archive.jobs, NOW)
    # Of two nodes with 8 GPUs for half an hour.
    [idle] = re.findall(r" - idle (\S+)", " ".join(re.sub(r"<[^>]+>", " ", page).split()))
    assert 0 < float(idle) <= 8
