from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fake_ray import FakeClock

from argus.cluster.membership import ClusterState, ExpectedNode, wait_until_ready
from argus.ray.api import RayApiError

EXPECTED = [ExpectedNode("ray-head", head=True, cpus=0), ExpectedNode("worker-0", cpus=2)]


HEAD, WORKER = (
    {"node_name": name, "state": "ALIVE", "is_head_node": name == "ray-head", "resources_total": resources}
    for name, resources in (("ray-head", {}), ("worker-0", {"CPU": 2.0}))
)


class FakeHead:
    """Returns one answer for each request, then the last one forever."""

    def __init__(self, *answers: list[dict[str, Any]] | RayApiError) -> None:
        self.answers = list(answers)
        self.requests = 0

    def nodes(self) -> list[dict[str, Any]]:
        answer = self.answers[min(self.requests, len(self.answers) - 1)]
        self.requests += 1
        if isinstance(answer, RayApiError):
            raise answer
        return answer


def wait(head: FakeHead, timeout: float, expected: Sequence[ExpectedNode] = EXPECTED) -> ClusterState:
    clock = FakeClock()
    return wait_until_ready(head, expected, timeout, clock.sleep, clock.monotonic)


def test_waits_until_the_last_node_has_joined() -> None:
    head = FakeHead(RayApiError("refused"), [HEAD], [HEAD], [HEAD, WORKER])
    state = wait(head, timeout=10)
    assert (state.membership.complete, state.problem, head.requests) == (True, "", 4)


def test_gives_up_after_the_timeout() -> None:
    state = wait(head := FakeHead([HEAD]), timeout=1)
    assert state.membership.missing == ["worker-0"]
    assert (state.problem, head.requests) == ("", 6)
    # Nobody waits for a node that is known not to come.
    head = FakeHead([])
    assert wait(head, 60, [ExpectedNode("worker-0", absent="no")]).membership.missing == ["worker-0"]
    assert head.requests == 1
