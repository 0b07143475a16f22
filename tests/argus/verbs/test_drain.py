from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_ray import answered

from argus.jobs import drain as jobs_drain
from argus.ray.departures import draining_nodes, node_removed_under
from argus.verbs import nodes

NODE = "a" * 56
JOB = {"submission_id": "grpo-1~2", "job_id": "01", "driver_node_id": NODE, "status": "RUNNING"}


class FakeHead:
    """A head with one worker, which a job uses."""

    def get(self, path: str) -> Any:
        return answered(path, [])

    def nodes(self) -> list[dict[str, Any]]:
        return [{"node_id": NODE, "state": "ALIVE"}]

    def jobs(self) -> list[dict[str, Any]]:
        return [JOB]


class Drain:
    """Runs the verb with a head and a command of Ray that accepts everything."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, ask: Callable[..., Any]) -> None:
        self.monkeypatch, self.ask = monkeypatch, ask
        self.commands: list[Sequence[str]] = []
        self.accept(0, "")

    def accept(self, code: int, text: str) -> None:
        self.monkeypatch.setattr(jobs_drain, "run_command", lambda line: self.commands.append(line) or (code, text))

    def __call__(self, **request: Any) -> tuple[int, Any]:
        result: tuple[int, Any] = self.ask("drain", worker="worker-1", node_id=NODE, **request)
        return result


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, ask: Callable[..., Any], tmp_path: Path) -> Drain:
    monkeypatch.setenv("ARGUS_VERL_REGISTRY", str(tmp_path))
    monkeypatch.setattr(nodes, "local_head", lambda _address: FakeHead())
    return Drain(monkeypatch, ask)


def test_a_worker_gets_no_new_work_once(run: Drain, tmp_path: Path) -> None:
    (tmp_path / f".draining-{'b' * 56}").touch()
    code, reply = run()
    assert (code, reply["changed"]) == (0, True)
    assert reply["result"] == {"jobs": ["grpo-1"], "alive": True, "waited": 0.0}
    # What Ray does not know any more is forgotten.
    assert draining_nodes(tmp_path) == {NODE} and node_removed_under("grpo-1~2", tmp_path) == ""
    assert run()[1]["changed"] is False
    assert len(run.commands) == 1


def test_what_a_removal_ends_is_remembered_but_for_check_mode(run: Drain, tmp_path: Path) -> None:
    code, reply = run(check=True, ends_jobs=True, wait_timeout=3600)
    assert (code, reply["changed"], reply["result"]["jobs"]) == (0, True, ["grpo-1"])
    assert (run.commands, draining_nodes(tmp_path)) == ([], frozenset())
    run(ends_jobs=True)
    assert node_removed_under("grpo-1~2", tmp_path) == "worker-1"


def test_ray_does_not_accept(run: Drain, tmp_path: Path) -> None:
    run.accept(1, "Error: not accepted\n")
    code, reply = run()
    assert (code, len(reply["findings"])) == (1, 1) and "Error: not accepted" in reply["findings"][0]["problem"]
    assert draining_nodes(tmp_path) == frozenset()
