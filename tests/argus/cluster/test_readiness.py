from __future__ import annotations

from typing import Any

from argus.cluster.membership import POLL_SECONDS, ClusterState, ExpectedNode, wait_until_ready
from argus.ray.api import RayApiError

EXPECTED = [ExpectedNode("ray-head", head=True, cpus=0), ExpectedNode("worker-0", cpus=2)]


def node(name: str, **resources: float) -> dict[str, Any]:
    return {
        "node_name": name,
        "state": "ALIVE",
        "is_head_node": name == "ray-head",
        "resources_total": resources,
    }


HEAD, WORKER = node("ray-head"), node("worker-0", CPU=2.0)


class FakeHead:
    """Returns one answer for each question, then the last one for ever."""

    def __init__(self, *answers: list[dict[str, Any]] | RayApiError) -> None:
        self.answers = list(answers)
        self.asked = 0

    def nodes(self) -> list[dict[str, Any]]:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if isinstance(answer, RayApiError):
            raise answer
        return answer


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds == POLL_SECONDS
        self.now += seconds


def wait(head: FakeHead, timeout: float) -> ClusterState:
    clock = Clock()
    return wait_until_ready(head, EXPECTED, timeout, clock.sleep, clock)


def test_waits_until_the_last_node_has_joined() -> None:
    head = FakeHead([], [HEAD], [HEAD], [HEAD, WORKER])
    state = wait(head, timeout=10)
    assert state.membership.complete
    assert state.problem == ""
    assert head.asked == 4


def test_waits_for_a_head_that_does_not_answer_yet() -> None:
    head = FakeHead(RayApiError("refused"), [HEAD, WORKER])
    state = wait(head, timeout=10)
    assert state.membership.complete
    assert (state.problem, head.asked) == ("", 2)


def test_gives_up_after_the_timeout() -> None:
    head = FakeHead([HEAD])
    state = wait(head, timeout=1)
    assert state.membership.missing == ["worker-0"]
    assert (state.problem, head.asked) == ("", 6)


def test_nobody_waits_for_a_node_that_is_known_not_to_come() -> None:
    asked = []

    class Empty:
        def nodes(self) -> list[dict[str, Any]]:
            asked.append(1)
            return []

    absent = [ExpectedNode("worker-0", absent="no")]
    found = wait_until_ready(Empty(), absent, timeout=60, sleep=lambda _seconds: None, clock=lambda: 0.0)
    assert (len(asked), found.membership.missing) == (1, ["worker-0"])
