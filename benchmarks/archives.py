#!/usr/bin/env python3
"""Measure the verbs that read all archives of a shared root, with thousands of archives.

Run it after `make setup-dev`, on an idle machine: `.venv/bin/python benchmarks/archives.py`.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from argus.archive.archive import Archive
from argus.jobs.listing import latest_jobs
from argus.jobs.removal import close_jobs


def write_archive(archive: Archive) -> None:
    """Write the archive of a job that has ended, with the files that readers of its status open."""
    archive.reserve()
    archive.write_text("config/job_spec.json", "{}\n", durable=False)
    status = '{"state": "SUCCEEDED", "closed_at": "2026-01-01T00:00:00Z", "workload": "sft", "steps": 2}\n'
    archive.write_text("status.json", status, durable=False)
    steps = "".join(f'{{"step": {step}, "data": {{"train/loss": 1.0}}}}\n' for step in range(1, 101))
    archive.write_text("logs/metrics-1.jsonl", steps, durable=False)


def median_seconds(rounds: int, call: Callable[[], object]) -> float:
    times = []
    for _round in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--archives", type=int, default=3000, help="how many archives there are")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", help="the directory for them; temporary by default")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.directory) as root:
        jobs = Path(root) / "jobs"
        names = [f"sft-{number:06}" for number in range(args.archives)]
        for name in names:
            write_archive(Archive(jobs / name))
        verbs: dict[str, Callable[[], object]] = {
            "status: the latest 20 jobs": lambda: latest_jobs(jobs, None, 20),
            "status: the latest 20 jobs with a tag": lambda: latest_jobs(jobs, None, 20, {"team": "a"}),
            "cluster_down: archives to be closed": lambda: close_jobs(jobs, names),
        }
        print(f"{args.archives} archives, medians of {args.rounds} rounds\n")
        for name, call in verbs.items():
            print(f"{name:38} {median_seconds(args.rounds, call) * 1000:6.0f} ms")
        print(f"\nat most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB of memory")


if __name__ == "__main__":
    main()
