"""Recorded archives, as data of pages."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from argus.archive.archive import Archive

RECORDED = Path(__file__).parents[2] / "unit" / "fixtures" / "archives" / "ended.tar.gz"
GRPO, FAILED, RETRIED = "grpo-20261121-231753-e873", "grpo-raises", "sft-retried"
# Markup, the end of a script, control characters, and characters that turn the direction of text.
HOSTILE = "</script><img src=x onerror=document.title=1>\x1b[31m\u202e{{7*7}}"


@pytest.fixture
def jobs(tmp_path: Path) -> Callable[[str], Archive]:
    shutil.unpack_archive(RECORDED, tmp_path / "jobs")
    return lambda name: Archive(tmp_path / "jobs" / name)


@pytest.fixture
def hostile(jobs: Callable[[str], Archive]) -> Archive:
    """A job that has written hostile text wherever a job has a word."""
    archive = jobs(FAILED)
    status = archive.status_json()
    failure = {"kind": "reward", "reason": HOSTILE, "lines": [HOSTILE], "todo": HOSTILE}
    status |= {"tags": {HOSTILE: HOSTILE}, "failure": failure, "reason": HOSTILE, "code_id": HOSTILE}
    status |= {"warnings": [{"kind": HOSTILE, "text": HOSTILE}], "lineage": {"resumed_from": HOSTILE}}
    status["attempts"] = [{"attempt": 1, "state": HOSTILE, "kind": HOSTILE, "reason": HOSTILE, "started_at": 1e308}]
    archive.write_json("status.json", status)
    plan = archive.read_mapping("config/plan.json")
    archive.write_json("config/plan.json", plan | {"overrides": [f"{HOSTILE}={HOSTILE}", "trainer.x=1"]})
    archive.write_json("config/job_spec.json", {"model": HOSTILE, "dataset": [HOSTILE], "trainer_overrides": [HOSTILE]})
    archive.write_json("config/versions.json", {HOSTILE: HOSTILE, "ray": {"a": HOSTILE}})
    archive.append(
        "events.jsonl", json.dumps({"time": "2026-11-22T00:00:00Z", "event": HOSTILE, "text": HOSTILE}) + "\n"
    )
    archive.append(
        "events.jsonl", '{"time": "9999-12-31T23:59:59Z", "event": "STALLED"}\n{"time": 7}\n[' + "[" * 5000 + "\n"
    )
    archive.append("logs/driver.log", f"{HOSTILE}\n")
    rows = [{"score": HOSTILE, "input": [HOSTILE], "output": HOSTILE * 1000, "gts": HOSTILE}, {"output": ""}]
    archive.append("samples/rollouts-7.jsonl", "".join(json.dumps(row) + "\n" for row in rows) + "[" * 5000)
    data = {HOSTILE: 1.5, f"val/{HOSTILE}": 2, "critic/rewards/mean": 1e308, "actor/lr": -1e308, "a": True, "b": "x"}
    lines = [{"step": 1, "data": data}, {"step": 1 << 53, "data": {**data, "actor/lr": 1e308, "timing_s/step": 1e308}}]
    archive.append("logs/metrics-1.jsonl", "".join(json.dumps(line) + "\n" for line in lines) + '{"step": 3, "da')
    return archive
