"""A head, its Jobs API and its processes, for unit tests of operations on jobs. Nothing here runs or sleeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from argus.jobs.registry import Registry
from argus.jobs.services import Services
from argus.ray.api import RayApiError


def answered(path: str, entries: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The answer of Ray's state API for a path with filters."""
    query = parse_qs(urlsplit(path).query)
    filters = zip(*(query.get(f"filter_{part}", []) for part in ("keys", "predicates", "values")), strict=True)
    matches = list(entries)
    for key, predicate, value in filters:
        matches = [entry for entry in matches if (str(entry.get(key)) == value) == (predicate == "=")]
    return {"data": {"result": {"result": matches}}}


class FakeClock:
    """Time passes only while something sleeps. `then` is called after each sleep."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.then: Callable[[float], object] = lambda _now: None

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.then(self.now)


@dataclass
class FakeRay:
    """One head with the jobs in `statuses`, by Ray's ids; and all calls that it gets, in order."""

    statuses: dict[str, str] = field(default_factory=dict)
    answers: bool = True
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    submitted: list[dict[str, Any]] = field(default_factory=list)
    # What was submitted with a job, by Ray's ids.
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)
    # What happens inside submit_job, stop_job and cancel_pending.
    on_submit: Callable[[], None] = lambda: None
    on_stop: Callable[[str], None] = lambda _identifier: None

    # The methods of api.RayHead.

    def job(self, identifier: str) -> dict[str, Any] | None:
        self.calls.append(("job", identifier))
        if not self.answers:
            raise RayApiError("http://127.0.0.1:8265/api/jobs/ does not answer: refused")
        status = self.statuses.get(identifier)
        return {"submission_id": identifier, "status": status} if status else None

    def jobs(self) -> list[dict[str, Any]]:
        if not self.answers:
            raise RayApiError("http://127.0.0.1:8265/api/jobs/ does not answer: refused")
        return [
            {"submission_id": identifier, "status": status, "metadata": self.metadata.get(identifier)}
            for identifier, status in self.statuses.items()
        ]

    # The methods of ray.job_submission.JobSubmissionClient.

    def submit_job(self, **arguments: Any) -> str:
        self.calls.append(("submit_job", arguments["submission_id"]))
        self.submitted.append(arguments)
        self.on_submit()
        return str(arguments["submission_id"])

    def get_job_status(self, identifier: str) -> str:
        if identifier not in self.statuses:
            raise RuntimeError(f"Job {identifier} does not exist")
        return self.statuses[identifier]

    def stop_job(self, identifier: str) -> bool:
        self.calls.append(("stop_job", identifier))
        self.on_stop(identifier)
        return True

    # The function attempts.cancel_pending.

    def cancel_pending(self, identifier: str) -> None:
        self.calls.append(("cancel_pending", identifier))
        self.on_stop(identifier)

    def services(self, registry: Registry, clock: FakeClock, address: str = "") -> Services:
        """The services of operations on jobs: this head for everything."""
        here = {"head": lambda _address: self, "client": lambda _address: self, "cancel_pending": self.cancel_pending}
        return Services(**here, address=address, registry=registry, clock=clock)

    @property
    def changes(self) -> list[tuple[Any, ...]]:
        """The calls that change something."""
        return [call for call in self.calls if call[0] != "job"]
