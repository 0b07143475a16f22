"""The page of jobs, from recorded archives and from those of hostile jobs."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Callable
from importlib import resources
from typing import Any

import pytest

from argus.archive.archive import Archive
from argus.evidence import hardware
from argus.evidence.hardware import Gpu, Measurement, Usage
from argus.report import job_curves, page, tables
from argus.report.data import MAX_EVENTS, read_job

from .conftest import FAILED, GRPO, HOSTILE, RETRIED

Jobs = Callable[[str], Archive]


def made(*archives: Archive) -> str:
    return page.render_page([read_job(archive) for archive in archives], 1795303200.0)


def data_of(text: str) -> dict[str, Any]:
    [data] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return dict(json.loads(data))


def test_a_job_that_has_trained(jobs: Jobs) -> None:
    text = made(jobs(GRPO))
    for part in (f"<title>{GRPO}</title>", "SUCCEEDED", "grpo on verl-0.9.1", "gsm8k_tiny", "tiny-qwen2"):
        assert part in text
    assert "<td>actor_rollout_ref.actor.optim.lr</td><td>0.001</td>" in text and "<td>gen</td>" in text
    data = data_of(text)
    [reward] = [lines for lines in data["charts"] if lines[0]["label"] == "critic/rewards/mean"]
    assert [line["label"].rpartition("/")[2] for line in reward] == ["mean", "min", "max"]
    assert (data["axes"][reward[0]["axis"]], reward[0]["values"][-1]) == ([1] * 12, 0.16794)
    assert [part["label"] for part in data["stack"]][:2] == ["gen", "old_log_prob"]
    sums = [sum(values) for values in zip(*(part["values"] for part in data["stack"]), strict=True)]
    [step] = [lines[0]["values"] for lines in data["charts"] if lines[0]["label"] == "timing_s/step"]
    assert sums == pytest.approx(step, rel=1e-3)
    assert len(data["charts"]) > 80


def test_what_a_job_reached_and_needed(jobs: Jobs) -> None:
    archive = jobs(GRPO)
    for number, memory in enumerate((10e9, 30e9, 20e9)):
        usage = Usage(memory=memory, gpus=(Gpu(memory=memory * 2),))
        hardware.append(archive, Measurement(1000.0 + number, {"gpu-1": usage, "gpu-2": Usage(memory=1e9)}))
    job = read_job(archive)
    values = job.curves.curves["critic/rewards/mean"].values
    best = f"{max(values):.5g} at step {values.index(max(values)) + 1}"
    last = f"{sum(values[-10:]) / 10:.5g} on average"
    facts = list(tables.result_facts(job).values())
    assert facts == [best, last, "gen, 2.02 s of a step", "30 GB, gpu-1", "60 GB, gpu-1"]
    assert tables.result_facts(read_job(jobs(FAILED))) == {}
    assert tables.result_facts(read_job(jobs(RETRIED)))["Best"] == "2.0469 at step 48"


def test_nothing_but_our_own_code_runs(jobs: Jobs) -> None:
    text = made(jobs(GRPO))
    [policy] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert "default-src 'none'" in policy and "unsafe" not in policy
    code = re.findall(r"<(?:script|style)>(.*?)</(?:script|style)>", text, re.S)
    assert len(code) == 3 and "Permission is hereby granted" in code[1]
    for part in code:
        assert base64.b64encode(hashlib.sha256(part.encode()).digest()).decode() in policy
    assert not re.search(r"<[^>]+ (?:on\w+|style|src|href)=", text.replace(code[1], "").replace(code[2], ""))


def test_what_is_vendored_is_what_was_read() -> None:
    directory = resources.files("argus.report")
    for name, digest in re.findall(r"`(uplot\S+)` \| `(\w{64})`", (directory / "README.md").read_text()):
        assert hashlib.sha256((directory / name).read_bytes()).hexdigest() == digest


def test_hostile_text_is_text(hostile: Archive, jobs: Jobs) -> None:
    for text in (made(hostile), made(hostile, jobs(GRPO))):
        assert "<img" not in text and "\x1b" not in text and "\u202e" not in text
        assert text.count("</script>") == 3
        assert "\\x1b" in text and "{{7*7}}" in text
        assert html.unescape(text).count(HOSTILE.partition("\x1b")[0]) > 12
        assert json.dumps(data_of(text))


def test_hostile_files_do_not_hide_the_rest(jobs: Jobs) -> None:
    archive = jobs(GRPO)
    for name in ("events.jsonl", "config/plan.json", "config/versions.json", "logs/driver.log"):
        (archive.path / name).unlink(missing_ok=True)
        (archive.path / name).mkdir()
    (archive.path / "debug" / "index.jsonl").write_bytes(b"\xff\x00[[[\n" * 1000)
    text = made(archive)
    assert "Not shown" in text and text.count("is not a regular file") >= 3 and "critic/rewards/mean" in text


def test_sizes_are_bounded(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = jobs(GRPO)
    long = "x" * 1_000_000
    data = {f"metric-{number}-{'y' * number}": 1.0 for number in range(1000)} | {"actor/lr": 1.0}
    with (archive.path / "logs/metrics-1.jsonl").open("w") as file:
        file.writelines(json.dumps({"step": step, "data": data}) + "\n" for step in range(20))
    line = '{"time": "2026-11-22T00:00:00Z", "event": "WARNING", "text": "again"}\n'
    (archive.path / "events.jsonl").write_text(line * (MAX_EVENTS + 500))
    archive.append("logs/driver.log", f"{long}\n" * 3)
    archive.write_json("config/versions.json", {"ray": long, "torch": long})
    archive.write_json("config/job_spec.json", {"model": long})
    job = read_job(archive)
    assert len(job.events) == MAX_EVENTS + 3 and len(job.curves.curves) <= job_curves.MAX_METRICS + 1
    assert "actor/lr" in job.curves.curves and {"many" in problem for problem in job.problems} >= {True}
    assert len(page.render_page([job], 0.0)) < 1_500_000
