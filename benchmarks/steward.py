#!/usr/bin/env python3
"""Measure what the steward of a cluster with hundreds of jobs costs, and whether it grows.

The steward is the real process, and its jobs run, wait or have ended. A fake head answers as Ray's head does while all
workers are in use. The last rows show the requests that the head got in the last interval.

Run it after `make setup-dev`, on an idle machine: `.venv/bin/python benchmarks/steward.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from fake_ray import answered
from program import write_program
from steward_scene import HEAD, worker

from argus.archive.archive import Archive
from argus.common.identity import JOBS_API
from argus.jobs.registry import RegisteredJob, Registry
from argus.queue.demand import Demand
from argus.ray.admission import REGISTRY_VARIABLE

# How often Ray's monitor updates the usage of resources.
USAGE_INTERVAL_SECONDS = 5
ENDED = "SUCCEEDED"
ENVIRONMENT = {f"VARIABLE_{index}": "some value of a variable of the environment" for index in range(30)}


class FakeHead(BaseHTTPRequestHandler):
    # By path. They are made once, because the head has to be faster than its clients.
    answers: ClassVar[dict[str, bytes]] = {}
    requests: ClassVar[Counter[str]] = Counter()

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.requests[re.sub("sft-.*", "<id>", path)] += 1
        now = time.time() // USAGE_INTERVAL_SECONDS * USAGE_INTERVAL_SECONDS
        body = self.answers.get(path, b"[]").replace(b'"NOW"', b"%d" % now)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_message: object) -> None:
        pass


def create_jobs(root: Path, registry: Registry, states: Sequence[str]) -> list[Archive]:
    """Create jobs, with a worker for each that runs, and the head's answers; return the archives of those that run."""
    now, records, active = time.time(), [], []
    for number, state in enumerate(states):
        archive = Archive(root / "jobs" / f"sft-{number:06}")
        archive.reserve()
        archive.write_json("config/plan.json", {"nnodes": 1, "gpus_per_node": 8, "cpus_per_node": 24})
        moments = dict.fromkeys(("submitted_at", "queued_at", "attempt_submitted_at", "attempt_started_at"), now)
        archive.set_status(state, **moments, closed_at="2026-01-01" if state == ENDED else "")
        if state != ENDED:
            archive.write_heartbeat("steward.json", time=now)
        if state == "RUNNING":
            active.append(archive)
        if state != "QUEUED":
            job = {"submission_id": archive.submission_id, "job_id": f"{number:08x}", "start_time": now * 1000}
            more = {"metadata": Demand(1, 8, 24).to_metadata(), "runtime_env": {"env_vars": ENVIRONMENT}}
            records.append({**job, "status": state, **more})
        registry.write(RegisteredJob(archive.submission_id, now, {}, str(root)))
    total = {"CPU": 48, "GPU": 8, "worker_node": 100}
    workers = [worker(f"n{number}", resources_total=total) for number in range(len(active))]
    bundles = [{"unit_resources": {"GPU": 8}}]
    groups = [{"creator_job_id": job["job_id"], "state": "CREATED", "bundles": bundles} for job in records]
    usage = {"usageByNode": {node["node_id"]: {"GPU": [8, 8], "CPU": [24, 48]} for node in workers}}
    answers: dict[str, Any] = {f"/api/jobs/{job['submission_id']}": job for job in records} | {
        "/api/jobs/": records,
        "/api/v0/nodes": answered("", [{**HEAD, "resources_total": {}}, *workers]),
        "/api/v0/placement_groups": answered("", groups[: len(active)]),
        "/api/v0/actors": answered("", []),
        "/api/v0/tasks": answered("", []),
        "/api/cluster_status": {"data": {"clusterStatus": {"time": "NOW", "loadMetricsReport": usage}}},
    }
    FakeHead.answers.update({path: json.dumps(answer).encode() for path, answer in answers.items()})
    return active


def measure(pid: int, seconds: float, active: Sequence[Archive]) -> str:
    """A row with what the process used in these seconds, while launchers wrote heartbeats, and has at their end."""
    proc, before, until = Path(f"/proc/{pid}"), cpu_seconds(pid), time.monotonic() + seconds
    FakeHead.requests.clear()
    while time.monotonic() < until:
        for archive in active:
            archive.write_heartbeat("heartbeat.json", time=time.time(), step=1)
        time.sleep(2)
    process, children = (after - start for after, start in zip(cpu_seconds(pid), before, strict=True))
    memory, threads = re.findall(r"^(?:VmRSS|Threads):\s+(\d+)", (proc / "status").read_text(), re.MULTILINE)
    files, rate = len([*(proc / "fd").iterdir()]), FakeHead.requests.total() / seconds
    return f"{process:5.1f}  {children:11.1f}  {int(memory) / 1024:7.1f}  {files:5}  {threads:>7}  {rate:10.1f}"


def cpu_seconds(pid: int) -> list[float]:
    """Two numbers: the CPU seconds of a process, and those of its children that have ended."""
    ticks = [int(word) for word in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]]
    return [sum(ticks[start : start + 2]) / os.sysconf("SC_CLK_TCK") for start in (0, 2)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"jobs": 500, "running": 50, "waiting": 36, "intervals": 6, "seconds": 60}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeHead)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as directory:
        root, registry = Path(directory), Registry(Path(directory) / "registry")
        registry.path.mkdir()
        states = ["RUNNING"] * args.running + ["QUEUED"] * args.waiting
        active = create_jobs(root, registry, states + [ENDED] * (args.jobs - len(states)))
        env = {REGISTRY_VARIABLE: str(registry.path), JOBS_API: f"http://127.0.0.1:{server.server_port}"}
        command = [sys.executable, "-I", str(write_program(root / "program")), "steward"]
        with subprocess.Popen(command, env={**os.environ, **env}) as steward:
            print("interval  CPU s  of children  RSS MiB  files  threads  requests/s", flush=True)
            for number in range(1, args.intervals + 1):
                print(f"{number:8}  {measure(steward.pid, args.seconds, active)}", flush=True)
            steward.kill()
    for path, count in FakeHead.requests.most_common():
        print(f"{count / args.seconds:9.2f}/s  {path}")


if __name__ == "__main__":
    main()
