#!/usr/bin/env python3
"""Let the stewards of running and waiting jobs pass a day in minutes, and print what could grow after each hour.

Their head is a fake, and their sleep only advances a clock. Archives and evidence are real.

Run it after `make setup-dev`: `.venv/bin/python benchmarks/steward_day.py`.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import steward_scene

from argus.archive.archive import Archive
from argus.common.identity import JOBS_API
from argus.evidence import evidence
from argus.evidence.evidence import Moment
from argus.steward import job


class Runner(steward_scene.Runner):
    """Collects periodic evidence in this process instead of another one, from a head that does not answer."""

    def __init__(self, archive: Archive) -> None:
        super().__init__()
        self.archive = archive

    def record(self, verb: str, *_arguments: object) -> None:
        if verb == "evidence":
            evidence.collect(self.archive, Moment.PERIODIC)


def create_scene(root: Path, *, waits: bool) -> steward_scene.Scene:
    """A job with its steward. waits: whether it waits for more GPUs than the worker has, which are 8."""
    made = steward_scene.Scene(root, gpus_per_node=16 if waits else 8)
    made.steward.runner = Runner(made.archive)
    if waits:
        made.state("QUEUED", queued_at=made.clock.now)
    else:
        made.running()
    return made


def pass_hour(scene: steward_scene.Scene) -> None:
    until = scene.clock.now + 3600
    while scene.clock.now < until:
        scene.archive.write_heartbeat("heartbeat.json", time=scene.clock.now, step=int(scene.clock.now))
        scene.steward.try_step()
        # The fake head records all requests, which would grow.
        scene.head.requests.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--jobs", type=int, default=2, help="every other one waits")
    parser.add_argument("--directory", help="the directory for archives; temporary by default")
    args = parser.parse_args()
    os.environ[JOBS_API] = "http://127.0.0.1:1"
    # Between two steps, the steward would only read the same status again.
    job.POLL_INTERVAL_SECONDS = job.STEP_INTERVAL_SECONDS
    with tempfile.TemporaryDirectory(dir=args.directory) as root:
        scenes = [create_scene(Path(root) / str(number), waits=bool(number % 2)) for number in range(args.jobs)]
        print("hour  RSS MiB  blocks  objects  descriptors  files  KiB in files", flush=True)
        for hour in range(1, args.hours + 1):
            for scene in scenes:
                pass_hour(scene)
            gc.collect()
            files = [path for path in Path(root).rglob("*") if path.is_file()]
            size = sum(path.stat().st_size for path in files) / 1024
            memory = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
            descriptors, objects = len([*Path("/proc/self/fd").iterdir()]), len(gc.get_objects())
            row = f"{hour:4}  {memory:7.1f}  {sys.getallocatedblocks():6}  {objects:7}  {descriptors:11}"
            print(f"{row}  {len(files):5}  {size:12.1f}", flush=True)
        print("events:", Counter(event for scene in scenes for event in scene.events()))


if __name__ == "__main__":
    main()
