from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fake_ray import answered

from argus.jobs.drain import wait_until_unused

NODE = "a" * 56


def job(submission_id: str, job_id: str | None, driver: str = "other", status: str = "RUNNING") -> dict[str, Any]:
    return {"submission_id": submission_id, "job_id": job_id, "driver_node_id": driver, "status": status}


def actor(job_id: str, node_id: str = NODE, state: str = "ALIVE", name: str = "") -> dict[str, Any]:
    return {"job_id": job_id, "node_id": node_id, "state": state, "name": name}


class FakeHead:
    """A head with one worker, whose jobs end after some requests."""

    def __init__(self, jobs: Sequence[Any] = (), actors: Sequence[Any] = (), groups: Sequence[Any] = ()) -> None:
        self.answers = {"actors": list(actors), "placement_groups": list(groups)}
        self.listed = list(jobs)
        self.state = "ALIVE"

    def get(self, path: str) -> Any:
        kind = next(kind for kind in self.answers if f"/{kind}?" in path)
        return answered(path, self.answers[kind])

    def nodes(self) -> list[dict[str, Any]]:
        return [{"node_id": NODE, "state": self.state}, {"node_id": "other", "state": "ALIVE"}]

    def jobs(self) -> list[dict[str, Any]]:
        return self.listed


def test_jobs_of_a_node() -> None:
    listed = [job("driver-here~2", "01", NODE), job("actor-here", "02"), job("reserved", "03"), job("away", "04")]
    listed += [job("ended", "05", NODE, "FAILED"), job("waits", None, NODE, "PENDING")]
    actors = [actor("02"), actor("02"), actor("04", "other"), actor("04", state="DEAD"), actor("99")]
    actors += [actor("04", name="_ray_internal_job_actor_away"), {**actor("98"), "class_name": "NodeRunner"}]
    bundles = [{"node_id": "other"}, {"node_id": NODE}]
    groups = [
        {"creator_job_id": "03", "state": "CREATED", "bundles": bundles},
        {"creator_job_id": "04", "state": "REMOVED", "bundles": bundles},
        {"creator_job_id": "04", "state": "CREATED", "bundles": bundles[:1]},
        {"creator_job_id": "04", "state": "PENDING", "bundles": None},
    ]
    jobs = wait_until_unused(FakeHead(listed, actors, groups), NODE, 0)["jobs"]
    # An interactive driver has no name but Ray's.
    assert sorted(jobs) == ["Ray's job 99", "actor-here", "driver-here", "reserved", "waits"]


def test_waiting_for_the_jobs_of_a_node() -> None:
    head, now = FakeHead([job("grpo-1", "01", NODE)]), [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if now[0] > 5:
            head.listed = []

    def waits(timeout: float, held: list[str] | None = None) -> tuple[Any, ...]:
        result = wait_until_unused(head, NODE, timeout, held, sleep, lambda: now[0])
        return result["jobs"], result["alive"], result["waited"]

    assert waits(0) == (["grpo-1"], True, 0.0)
    assert waits(4) == (["grpo-1"], True, 4.0)
    assert waits(100) == ([], True, 2.0)
    now[0], head.listed = 0.0, [job("grpo-1", "01", NODE), job("sft-1", "02", NODE)]
    # Jobs other than those that it waits for are reported at once.
    assert waits(4, ["sft-1"]) == (["grpo-1", "sft-1"], True, 0.0)
    # Without work the node has ended by itself; what Ray still lists for it does not count.
    head.state = "DEAD"
    assert waits(100) == ([], False, 0.0)
