"""What the steward answers Prometheus and people: a real server, real archives."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import socket
import threading
import urllib.request
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from real_processes import until

from argus.archive.archive import ENGINE_ADDRESSES, Archive
from argus.steward import web

NOW = 1_800_000_000.0


def make(jobs: Path, name: str, state: str, **details: object) -> Archive:
    archive = Archive(jobs / name)
    archive.reserve()
    archive.set_status(state, workload="grpo", attempt=2, **details)
    archive.write_json("heartbeat.json", {"time": NOW, "step": 7, "total_steps": 20})
    archive.metrics_file(2).write_text("{}\n")
    os.utime(archive.metrics_file(2), (NOW - 90, NOW - 90))
    return archive


@pytest.fixture
def archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Archive]:
    monkeypatch.setattr(web.time, "time", lambda: NOW)
    made = [make(tmp_path / "jobs", f"grpo-{state.lower()}", state) for state in ("RUNNING", "QUEUED")]
    made.append(make(tmp_path / "jobs", "grpo-failed", "FAILED", ended_at=NOW - 60))
    made.append(make(tmp_path / "jobs", "grpo-old", "SUCCEEDED", ended_at=NOW - 2 * web.ENDED_JOB_SECONDS))
    # What a job may have put there.
    broken = make(tmp_path / "jobs", "grpo-broken", "RUNNING")
    (broken.path / "status.json").write_text("[" * 100_000)
    return [*made, broken]


def read(port: int, seconds: float = 10) -> dict[tuple[str, ...], float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=seconds) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {(sample.name, *sample.labels.values()): sample.value for one in families for sample in one.samples}


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    with socket.socket() as free:
        free.bind(("", 0))
        number = int(free.getsockname()[1])
    monkeypatch.setenv(web.DASHBOARD_PORT_VARIABLE, str(number - web.PORT_OFFSET))
    return number


def test_what_prometheus_reads(archives: list[Archive], port: int) -> None:
    web.serve(lambda: archives)
    metrics = read(port)
    jobs = {(state, f"grpo-{state.lower()}", "grpo") for state in ("RUNNING", "QUEUED", "FAILED")}
    assert {key[1:] for key in metrics if key[0] == "argus_job_state"} == jobs
    assert [metrics[f"argus_job_{name}", "grpo-running"] for name in ("step", "steps", "attempt")] == [7, 20, 2]
    silent = [(*key, value) for key, value in metrics.items() if key[0] == "argus_job_silent_seconds"]
    assert silent == [("argus_job_silent_seconds", "grpo-running", 90)]
    archives[0].set_status("RUNNING", workload="x" * (1 << 18))
    assert max(len(value) for key in read(port) for value in key) < 1000
    [(_name, root)] = [key for key in metrics if key[0] == "argus_shared_root_free_bytes"]
    assert root == str(archives[0].jobs.parent)


def test_where_prometheus_finds_the_engines_of_jobs(archives: list[Archive], port: int) -> None:
    """verl writes the file with yaml.dump; only running jobs count."""
    for archive in archives:
        (archive.path / "config").mkdir(exist_ok=True)
        servers = ["172.18.0.3:38921", "[fd00::1]:38922", "not an address"]
        scraped = [{"job_name": "rollout", "static_configs": [{"targets": servers}]}]
        (archive.path / ENGINE_ADDRESSES).write_text(yaml.dump({"scrape_configs": scraped}, default_flow_style=False))
    web.serve(lambda: archives)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{web.TARGETS_PATH}", timeout=10) as page:
        groups = json.load(page)
    assert groups == [{"targets": ["172.18.0.3:38921", "[fd00::1]:38922"], "labels": {"submission_id": "grpo-running"}}]


def test_slow_clients_keep_nothing(archives: list[Archive], port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some say nothing; others send a little again and again, and would never end."""
    monkeypatch.setattr(web, "REQUEST_TIMEOUT_SECONDS", 1.0)
    before = threading.active_count()
    web.serve(lambda: archives)
    with contextlib.ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(web.MAX_REQUESTS * 2)
        ]
        over = threading.Event()
        stack.callback(over.set)

        def drip() -> None:
            while not over.wait(0.1):
                for client in clients[3:]:
                    with contextlib.suppress(OSError):
                        client.sendall(b"G")

        threading.Thread(target=drip, daemon=True).start()
        assert read(port)
    # Timers that were cancelled end a moment later.
    until(lambda: threading.active_count() <= before + 2 * web.MAX_REQUESTS + 1)


def answer(port: int, path: str) -> tuple[int, str, str]:
    """The status, the content and the policy of a page."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as client:
        client.request("GET", f"/{path}")
        page = client.getresponse()
        return page.status, page.read().decode(), page.getheader("Content-Security-Policy", "")


def test_pages_are_for_those_who_know_the_token(
    archives: list[Archive], port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setenv(web.TOKEN_PATH_VARIABLE, str(tmp_path / "token"))
    archive = archives[0]
    (archive.jobs / "index.html").write_text("all jobs")
    (archive.path / "report.html").write_text("one job")
    (archive.jobs / "secret.html").write_text("no page")
    os.mkfifo(archives[1].path / "report.html")
    (archives[2].path / "report.html").symlink_to(archive.path / "report.html")
    (archive.jobs / "grpo-link").symlink_to(archive.path)
    (archive.jobs / ".hidden").mkdir()
    (archive.jobs / ".hidden" / "report.html").write_text("hidden")
    web.serve(lambda: archives)
    key = web.pages_key("secret")
    # As pages.yml makes it, with sha256sum.
    assert key == hashlib.sha256(b"secret pages").hexdigest()
    assert answer(port, f"{key}/index.html")[:2] == (200, "all jobs")
    status, text, policy = answer(port, f"{key}/{archive.submission_id}/report.html")
    assert (status, text) == (200, "one job") and "sandbox" in policy and "default-src 'none'" in policy
    for path in (
        *("", "secret.html", "report.html", "../index.html", f"../{archive.jobs.name}/index.html", "none/report.html"),
        *(f"{archive.submission_id}/status.json", "grpo-link/report.html", ".hidden/report.html"),
        *(f"{archives[1].submission_id}/report.html", f"{archives[2].submission_id}/report.html"),
    ):
        assert answer(port, f"{key}/{path}")[0] == 404, path
    for path in ("index.html", f"{'0' * 64}/index.html", f"{web.pages_key('')}/index.html", "%c3%a4/index.html"):
        _status, text, _policy = answer(port, path)
        assert "argus_job_state" in text and "all jobs" not in text
