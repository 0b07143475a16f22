"""Evidence of a job; Ray and its nodes are fakes."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_ray import answered

from argus.archive.archive import Archive
from argus.evidence import evidence, node
from argus.evidence.evidence import Moment
from argus.hooks import redact, worker_secrets

LISTS = ("nodes", "actors", "tasks", "placement_groups")
HEAD_FILES = ["ray_job_list.json", *(f"ray_list_{name}.json" for name in LISTS)]
HEAD_FILES += ["nodes.json", "ray_cluster_status.json", "ray_status.txt"]
SAID = dict.fromkeys(("entrypoint", "message", "name", "serialized_runtime_env"), "of_another")
SAID |= {"runtime_env": {"env_vars": {"A": "of_another"}}, "options": {"runtime_env": {"A": "of_another"}}}
SAID |= {"metadata": {"key": "of_another"}, "death_cause": {"x": {"error_message": "of_another"}}}
JOBS = [
    {"submission_id": "grpo-1", "job_id": "01", "driver_node_id": "n1", "entrypoint": "own", "runtime_env": {"A": "1"}},
    {"submission_id": "grpo-1~2", "job_id": "02", "driver_node_id": "n1"},
    # Not started yet.
    {"submission_id": "grpo-1~3", "job_id": None, "driver_node_id": None},
    {"submission_id": "grpo-10", "job_id": "03", "driver_node_id": "n3", **SAID},
]
ACTORS = [
    {"job_id": "01", "node_id": "n2", "pid": 20, "name": "own_actor", "serialized_runtime_env": "{}"},
    {"job_id": "02", "node_id": "n2", "pid": 21},
    {"job_id": "02", "node_id": "gone", "pid": 22},
    # It was never placed.
    {"job_id": "02", "node_id": None, "pid": None},
    {"job_id": "03", "node_id": "n3", "pid": 30, **SAID},
]


class Head:
    """A fake of the head's API."""

    def jobs(self) -> list[dict[str, Any]]:
        return [dict(job) for job in JOBS]

    def get(self, path: str) -> Any:
        if path == "/api/jobs/":
            return self.jobs()
        if path.startswith("/nodes"):
            return {"data": {"summary": [{"hostname": "worker-0", "cpu": 3.5, "cmdline": ["x"]}]}}
        if path == "/api/cluster_status":
            return {"data": {"clusterStatus": {"loadMetricsReport": {"usageByNode": {"n1": {"GPU": [1.0, 4.0]}}}}}}
        if path == "/api/cluster_status?format=1":
            return {"data": {"clusterStatus": "======== Autoscaler status ========"}}
        if path.startswith("/api/v0/tasks"):
            raise ConnectionError("the list of tasks contains hf_secret")
        return answered(path, ACTORS if "actors" in path else [{"path": path}])


class Nodes:
    """A fake of Ray with a head and three workers, where functions run at once."""

    problem = ""

    def __init__(self, *silent: str) -> None:
        self.silent = silent
        self.calls: list[tuple[str, str, tuple[Any, ...]]] = []

    def nodes(self) -> list[dict[str, Any]]:
        head = {"NodeID": "n0", "NodeName": "ray-head", "Resources": {"node:__internal_head__": 1.0}}
        return [head, *({"NodeID": f"n{n}", "NodeName": f"worker-{n}", "Resources": {}} for n in (1, 2, 3))]

    def start_on(self, node_id: str, function: Callable[..., Any], *arguments: Any) -> tuple[str, Callable[[], Any]]:
        self.calls.append((node_id, function.__name__, arguments))
        return node_id, lambda: function(*arguments)

    def results(
        self, started: Mapping[str, tuple[str, Callable[[], Any]]], seconds: float
    ) -> tuple[dict[str, Any], dict[str, str]]:
        problems = {name: "no answer within 45 s" for name, (at, _function) in started.items() if at in self.silent}
        return {name: function() for name, (_at, function) in started.items() if name not in problems}, problems


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "local_head", lambda _address: Head())
    monkeypatch.setenv("PATH", "/nowhere")

    def collect(
        archive: str, directory: str, job_ids: list[str], since: float, with_packages: bool
    ) -> list[dict[str, Any]]:
        text = json.dumps({"job_ids": job_ids, "since": since, "with_packages": with_packages})
        return [node.write(Path(archive), f"{directory}/request.json", lambda: text, redact.Redactor([]))]

    monkeypatch.setattr(node, "collect", collect)


def index(archive: Archive) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (archive.path / "debug" / "index.jsonl").read_text().splitlines()]


def files(archive: Archive) -> list[str]:
    """The files, without the times in their names."""
    paths = (path for path in archive.path.glob("debug/**/*") if path.is_file() and path.name != "index.jsonl")
    return sorted(str(path.relative_to(archive.path / "debug")).partition("-")[2] for path in paths)


def test_evidence_of_the_head(archive: Archive) -> None:
    worker_secrets.store(archive.path, {"HF_TOKEN": "hf_secret"})
    entries = evidence.collect(archive, Moment("periodic"))
    texts = {entry["file"].partition("-periodic-")[2]: (archive.path / entry["file"]).read_text() for entry in entries}
    assert list(texts) == [name + (".error" if name == "ray_list_tasks.json" else "") for name in HEAD_FILES]
    assert texts["ray_status.txt"] == "======== Autoscaler status ========\n"
    assert json.loads(texts["ray_cluster_status.json"])["loadMetricsReport"]["usageByNode"] == {"n1": {"GPU": [1, 4]}}
    assert texts["ray_list_tasks.json.error"] == "ConnectionError: the list of tasks contains [secret]\n"
    # They have nothing of other jobs' requests and output, and no environment: that of the job is in its archive.
    for name, text in texts.items():
        assert not any(word in text for word in ("of_another", "runtime_env", "cmdline")), name
    assert '"own"' in texts["ray_job_list.json"] and "own_actor" in texts["ray_list_actors.json"]
    assert len(json.loads(texts["ray_job_list.json"])) == len(JOBS)
    assert len(json.loads(texts["ray_list_actors.json"])) == len(ACTORS)
    assert json.loads(texts["nodes.json"])[0]["cpu"] == 3.5
    assert [
        line | entry | {"moment": "periodic"} for line, entry in zip(index(archive), entries, strict=True)
    ] == index(archive)


def test_only_the_newest_periodic_evidence_is_kept(archive: Archive) -> None:
    archive.write_text("debug/20260101T000000.000000Z-stall-worker-0/stacks.txt", "")
    evidence.collect(archive, Moment("submit"))
    for _round in range(evidence.MAX_PERIODIC + 3):
        evidence.collect(archive, Moment("periodic"))
    kept = files(archive)
    assert kept.count("periodic-ray_status.txt") == evidence.MAX_PERIODIC
    assert kept.count("submit-ray_status.txt") == kept.count("stall-worker-0/stacks.txt") == 1
    # The index names all files, and no others.
    named = [entry["file"] for entry in index(archive)]
    assert all((archive.path / name).is_file() for name in named)
    assert len(named) == (evidence.MAX_PERIODIC + 1) * len(HEAD_FILES)


@pytest.mark.parametrize(("moment", "packages"), [("demand", True), ("end", False)])
def test_every_node_of_a_job_is_asked(archive: Archive, moment: str, packages: bool) -> None:
    archive.set_status("RUNNING", started_at=1000.5)
    connection = Nodes()
    entries = evidence.collect(archive, Moment(moment), connection)  # type: ignore[arg-type]
    # The worker of another job gets no request; one that is gone is reported.
    assert [at for at, _name, _arguments in connection.calls] == ["n0", "n0", "n1", "n2"]
    assert entries[0]["error"].startswith("node gone")
    files = {entry["node"]: entry["file"] for entry in entries[1:]}
    assert list(files) == ["the head's API", "worker-1", "worker-2"]
    request = {"job_ids": ["01", "02"], "since": 1000.5, "with_packages": packages}
    assert json.loads((archive.path / files["worker-2"]).read_text()) == request


def test_a_silent_node_does_not_prevent_evidence_of_the_others(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Nodes, "problem", "Ray cannot be reached")
    entries = evidence.collect(archive, Moment("end"), Nodes())  # type: ignore[arg-type]
    assert len([entry for entry in entries if not entry["file"]]) == 1
    assert files(archive) == [f"end-{socket.gethostname()}/request.json"]
    monkeypatch.setattr(Nodes, "problem", "")
    entries = evidence.collect(archive, Moment("end"), Nodes("n1"))  # type: ignore[arg-type]
    problems = [entry["error"].split(":")[0] for entry in entries if not entry["file"]]
    assert problems == ["worker-1", "node gone"] and "end-worker-2/request.json" in files(archive)


def test_every_worker_is_swept_but_not_the_head(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    def swept(submission_id: str, pids: list[int]) -> dict[str, Any]:
        return {"killed": {}, "left": [], "arguments": [submission_id, pids]}

    monkeypatch.setattr(node, "sweep_node", swept)
    result = evidence.sweep_job(archive, Nodes("n3"))  # type: ignore[arg-type]
    # Also workers without its actors: a driver or children of the trainer may have run there.
    assert {name: answer["arguments"] for name, answer in result["nodes"].items()} == {
        "worker-1": ["grpo-1", []],
        "worker-2": ["grpo-1", [20, 21]],
    }
    assert result["problems"] == {"worker-3": "no answer within 45 s"}


def dead_actor(job_id: str, node_id: str, reason: str) -> dict[str, Any]:
    return {"job_id": job_id, "node_id": node_id, "death_cause": {"actor_died_error_context": {"reason": reason}}}


@pytest.mark.parametrize(("ended", "nodes"), [(False, {"a"}), (True, {"a", "b"})])
def test_nodes_that_a_job_may_have_lost(ended: bool, nodes: set[str]) -> None:
    actors = [
        dead_actor("01", "a", "NODE_DIED"),
        # A trainer that fails first ends its actors too, also those of a lost node that Ray has not noticed yet.
        dead_actor("01", "b", "OWNER_DIED"),
        dead_actor("01", "c", "OUT_OF_SCOPE"),
        dead_actor("02", "d", "NODE_DIED"),
        {"job_id": "01", "node_id": "e", "death_cause": None},
    ]
    assert evidence.nodes_of_dead_actors(actors, "01", driver_ended=ended) == nodes
