"""A steward's surroundings for tests: a fake head, a fake runner and a fake clock over a real archive."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from archive_files import lines_of
from fake_ray import FakeClock, answered

from argus.archive.archive import Archive
from argus.queue.queue import Queue
from argus.queue.room import PLACEMENT_GROUPS
from argus.ray.records import WorkerCapacity
from argus.steward import job as steward
from argus.steward.job import Steward

HEAD = {"node_id": "h", "node_name": "ray-head", "state": "ALIVE", "is_head_node": True}


def worker(name: str, state: str = "ALIVE", **details: Any) -> dict[str, Any]:
    return {"node_id": name, "node_name": f"worker-{name}", "state": state, "is_head_node": False, **details}


class Head:
    """A fake of RayHead."""

    def __init__(self) -> None:
        self.records: dict[str, dict[str, Any]] = {}
        self.node_list = [HEAD, worker("w0"), worker("w1")]
        self.actors: list[dict[str, Any]] = []
        self.controllers: list[dict[str, Any]] = []
        self.groups: list[dict[str, Any]] = []
        self.workers = [WorkerCapacity("worker-w0", "w0", 8, 48, 8, 48)]
        self.requests: list[str] = []

    def get(self, path: str) -> Any:
        if path == "/nodes?view=summary":
            return {"data": {"summary": []}}
        if path == PLACEMENT_GROUPS:
            records = self.groups
        else:
            assert path.startswith("/api/v0/actors?detail=")
            records = [*self.controllers, *self.actors]
        return answered(path, records)

    def nodes(self) -> list[dict[str, Any]]:
        return self.node_list

    def capacity(self) -> list[WorkerCapacity]:
        return self.workers

    def jobs(self) -> list[dict[str, Any]]:
        return [{"submission_id": identifier, **record} for identifier, record in self.records.items()]

    def job(self, submission_id: str) -> dict[str, Any] | None:
        self.requests.append(submission_id)
        return self.records.get(submission_id)


class Runner:
    """Records the launcher's verbs, and does what a test attaches to one."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.effects: dict[str, Callable[[], None]] = {}

    def record(self, verb: str, *arguments: object) -> None:
        self.calls.append((verb, *map(str, arguments)))
        self.effects.get(verb, lambda: None)()

    def start(self, verb: str, *arguments: str) -> Any:
        self.record(verb, *arguments)
        return SimpleNamespace(poll=lambda: 0)

    def run(self, verb: str, *arguments: str, seconds: float) -> None:
        assert seconds == steward.CLEAN_UP_TIMEOUT_SECONDS
        self.record(verb, *arguments)

    def run_ray_client(self, verb: str, attempt: int) -> None:
        self.record(verb, attempt)

    def admit(self) -> None:
        self.record("admit")


class Scene:
    """A job with its steward and everything around it."""

    def __init__(self, root: Path, **plan: Any) -> None:
        self.archive = Archive(root / "jobs" / "one")
        self.archive.reserve()
        self.archive.write_json("config/plan.json", {"nnodes": 1, "gpus_per_node": 8, "retries": 1, **plan})
        self.head, self.runner, self.clock = Head(), Runner(), FakeClock(1_000_000.0)
        self.meanwhile: Callable[[], object] = lambda: None
        self.start()

    def start(self, notify: str = "") -> None:
        """A steward that knows only the archive."""
        self.queue = Queue(self.archive.path.parents[1])
        options = {"queue": self.queue, "notify": notify}
        self.steward = Steward(self.archive, self.head, self.runner, self.clock, self.admission, **options)

    @contextlib.contextmanager
    def admission(self) -> Iterator[None]:
        """Between the last look at the head and the submission; `meanwhile` is what happens until then."""
        self.meanwhile()
        yield

    def state(self, state: str, **details: Any) -> None:
        self.archive.set_status(state, submitted_at=self.clock.now, **details)

    def running(self, attempt: int = 1) -> None:
        self.state("RUNNING", attempt=attempt, attempt_submitted_at=self.clock.now, attempt_started_at=self.clock.now)
        identifier = "one" if attempt == 1 else f"one~{attempt}"
        self.head.records[identifier] = {"status": "RUNNING", "job_id": "01", "driver_node_id": "w0"}

    def lose(self, node: str) -> None:
        """A node dies with an actor of the job."""
        self.head.node_list = [
            worker(node, "DEAD", end_time_ms=self.clock.now * 1000 + 1) if entry["node_id"] == node else entry
            for entry in self.head.node_list
        ]
        context = {"actor_died_error_context": {"reason": "NODE_DIED"}}
        self.head.actors.append({"job_id": "01", "node_id": node, "death_cause": context})

    def restart_head(self, after: float = 0.0) -> None:
        """The head is started again, with its tables."""
        self.clock.now += after
        dead = {**HEAD, "node_id": "h0", "state": "DEAD"}
        alive = {**HEAD, "start_time_ms": self.clock.now * 1000}
        self.head.node_list = [dead, alive, *self.head.node_list[1:]]
        self.start()

    def step(self, after: float = 0.0) -> bool:
        self.clock.now += after
        return self.steward.step()

    def verbs(self) -> list[str]:
        return [" ".join(map(str, call)) for call in self.runner.calls]

    def events(self) -> list[str]:
        return [line["event"] for line in lines_of(self.archive, "events.jsonl")]
