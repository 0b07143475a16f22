"""What two machines do with the archives of jobs on one shared root: `jobs_on_two_machines.py ROOT SAME_ROOT SCENE…`.

ROOT and SAME_ROOT are two mounts of one directory. Prints what was seen of each scene as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from archive_files import lines_of
from launcher_job import Setup

from argus.archive import checkpoints
from argus.archive.archive import Archive
from argus.queue import attempts

TIMES = 30
ONE, OTHER = Path(sys.argv[1]), Path(sys.argv[2])


def at_once(work: Callable[[Path, threading.Barrier], Any]) -> list[Any]:
    """The results of both machines. work: is called with the mount, and with a barrier."""
    barrier = threading.Barrier(2)
    with ThreadPoolExecutor(2) as machines:
        return list(machines.map(work, (ONE, OTHER), (barrier, barrier)))


def until(condition: Callable[[], Any], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("what was waited for did not happen")
        time.sleep(0.05)


def reserve() -> Any:
    """Which of the two got each id."""

    def work(root: Path, barrier: threading.Barrier) -> list[bool]:
        got = []
        for number in range(TIMES):
            barrier.wait()
            try:
                Archive(root / "jobs" / f"reserved-{number}").reserve()
                got.append(True)
            except FileExistsError:
                got.append(False)
        return got

    return at_once(work)


def status() -> Any:
    """Two machines write the status in turn, and one reads what the other writes: lost updates and invalid reads."""
    in_turn = [Archive(root / "jobs" / "written") for root in (ONE, OTHER)]
    in_turn[0].reserve()
    for number in range(TIMES):
        in_turn[number % 2].set_status("RUNNING", **{f"by_{number}": number})
    lost = [number for number in range(TIMES) if in_turn[0].status_json().get(f"by_{number}") != number]

    def work(root: Path, barrier: threading.Barrier) -> list[str]:
        archive = Archive(root / "jobs" / "written")
        barrier.wait()
        if root == ONE:
            for number in range(TIMES):
                archive.set_status("RUNNING", count=number, filler="x" * 20_000)
            return []
        problems, last, deadline = [], 0, time.monotonic() + 120
        while last < TIMES - 1 and time.monotonic() < deadline:
            current = archive.status_json()
            count = current.get("count", 0)
            if len(current.get("filler", "x" * 20_000)) != 20_000 or count < last:
                problems.append(f"{count} after {last}")
            last = count
        return problems if last == TIMES - 1 else [*problems, f"{last} at the end"]

    return lost, at_once(work)[1]


def events() -> Any:
    """How many events of two machines arrive in one file."""
    Archive(ONE / "jobs" / "told").reserve()

    def work(root: Path, barrier: threading.Barrier) -> None:
        archive = Archive(root / "jobs" / "told")
        for number in range(TIMES):
            barrier.wait()
            archive.event("TOLD", by=str(root), number=number)

    at_once(work)
    return [len(lines_of(Archive(root / "jobs" / "told"), "events.jsonl")) for root in (ONE, OTHER)]


def save(root: Path, step: int, ranks: int = 2) -> None:
    """Shards of the first ranks of two, as torch writes them, and verl's note of the step."""
    directory = root / "checkpoints" / f"global_step_{step}"
    directory.mkdir(exist_ok=True)
    for kind in ("model", "optim", "extra_state"):
        for rank in range(ranks):
            with zipfile.ZipFile(directory / f"{kind}_world_size_2_rank_{rank}.pt", "w") as file:
                file.writestr("archive/data.pkl", bytes(100_000))
    (root / "checkpoints" / "latest_checkpointed_iteration.txt").write_text(str(step))


def retry() -> Any:
    """A job fails on one machine, and goes on on the other one from the last complete checkpoint."""
    (ONE / "retry").mkdir()
    job = Setup(ONE / "retry")
    job.policy = {"retries": 1, "workload": "sft"}
    job.run("killed")
    seen, other = [], OTHER / "retry" / "jobs" / "sft-1"

    def last() -> int | None:
        checkpoint = checkpoints.last_complete(other / "checkpoints", "sft")
        return checkpoint.step if checkpoint else None

    seen.append(last())
    for step, ranks in ((10, 2), (20, 1)):
        save(job.archive.path, step, ranks)
        seen.append(last())
    truncated = job.archive.path / "checkpoints" / "global_step_20" / "model_world_size_2_rank_1.pt"
    save(job.archive.path, 20)
    seen.append(last())
    truncated.write_bytes(truncated.read_bytes()[:50_000])
    seen.append(last())
    job.code_path, job.archive = OTHER / "retry" / "common/code/verl" / job.code_path.name, Archive(other)
    job.cwd, job.path = OTHER / "retry" / "cwd", OTHER / "retry" / "bin"
    job.write_plan("steps")
    attempts.prepare_attempt(job.archive, 2)
    code, _output = job.run("steps", attempt=2)
    archive = Archive(ONE / "retry" / "jobs" / "sft-1")
    log = archive.log_tail(100_000)
    return {
        "seen": seen,
        "code": code,
        "state": archive.status_json()["state"],
        "resumed_from_step": archive.status_json()["resumed_from_step"],
        "resumes": "global_step_10" in log.rpartition("overrides")[2],
    }


def outage() -> Any:
    """The server is away when the trainer ends: /tmp/cut requests the outage, /tmp/away and /tmp/back report it."""
    (ONE / "outage").mkdir()
    job, go = Setup(ONE / "outage"), Path("/tmp/go")
    process = job.start("waits", GO=str(go), LINES="2000")
    archive = Archive(OTHER / "outage" / "jobs" / "sft-1")
    until(lambda: "pids" in archive.log_tail(1000))
    Path("/tmp/cut").touch()
    until(Path("/tmp/away").exists)
    go.touch()
    until(Path("/tmp/back").exists)
    output, errors = process.communicate(timeout=300)
    current = archive.status_json()
    return {
        "code": process.returncode,
        "errors": errors.decode(),
        "state": current["state"],
        "kind": current["failure"]["kind"],
        "lines": archive.log_tail(1 << 20).count("x" * 94 + "\n"),
        "whole": archive.log_tail(1 << 20) == output.decode(),
    }


if __name__ == "__main__":
    scenes = {scene.__name__: scene for scene in (reserve, status, events, retry, outage)}
    print(json.dumps({name: scenes[name]() for name in sys.argv[3:]}))
