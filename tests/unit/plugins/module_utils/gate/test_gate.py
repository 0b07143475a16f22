"""What the gate asks of nodes, and what it makes of their answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.gate import gate
from ansible_collections.argus.verl.plugins.module_utils.job.capacity import Cluster
from ansible_collections.argus.verl.plugins.module_utils.job.parse import parse_jobspec
from ansible_collections.argus.verl.plugins.module_utils.job.plan import Job, plan_job
from ansible_collections.argus.verl.plugins.module_utils.job.verl_releases import Profile


def finding(where: str, what: str, severity: str = "error", todo: str = "correct it") -> dict[str, str]:
    return {"where": where, "what": what, "todo": todo, "severity": severity}


def test_what_several_nodes_found_is_said_once() -> None:
    same, own = finding("model", "/m is not there"), finding("dataset", "/d is not there", todo="stage it")
    warning = finding("model", "/m is not there", severity="warning")
    assert gate.of_nodes({"worker-2": [same], "worker-0": [same, own], "worker-1": [warning]}) == [
        Finding("model", "worker-0, worker-2: /m is not there", "correct it"),
        Finding("dataset", "worker-0: /d is not there", "stage it"),
        Finding("model", "worker-1: /m is not there", "correct it", "warning"),
    ]


def test_nodes_that_found_nothing() -> None:
    assert gate.of_nodes({}) == []
    assert gate.of_nodes({"worker-0": [], "worker-1": []}) == []


def asked(root: Path, **changes: Any) -> tuple[dict[str, Any], Job]:
    given = {
        "workload": "grpo",
        "code_path": "verl-0.9.1",
        "model": "tiny",
        "dataset": "gsm8k",
        "shared_root": str(root),
        "env_vars": {"A": "1", "NCCL_ALGO": "Ring"},
        **changes,
    }
    findings, spec = parse_jobspec(given)
    assert findings == []
    job = plan_job(spec, Cluster("cpu", 2, 4, 48), "x", "grpo-1", Profile("0.9.1", (0, 9, 1)))
    return spec, job


def test_what_nodes_are_asked(tmp_path: Path) -> None:
    code, model = tmp_path / "common" / "code" / "verl" / "verl-0.9.1", tmp_path / "common" / "models" / "tiny"
    dataset, reward = tmp_path / "datasets" / "gsm8k", tmp_path / "user" / "code" / "r.py"
    for number, file in enumerate(
        (code / "mvp_marker.py", model / "config.json", dataset / "train.parquet", dataset / "val.parquet", reward)
    ):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x" * number)
    spec, job = asked(tmp_path, reward_fn_path="r.py:score", accept=["space"], debugger="legacy")
    request = gate.request(spec, job)
    environment = request.pop("environment")
    assert request == {
        "shared_root": str(tmp_path),
        "workload": "grpo",
        "code_path": str(code),
        "model": str(model),
        "dataset": str(dataset),
        "reward": [str(reward), "score"],
        "files": {
            f"{code}/mvp_marker.py": 0,
            f"{model}/config.json": 1,
            f"{dataset}/train.parquet": 2,
            f"{dataset}/val.parquet": 3,
            str(reward): 4,
        },
        "accept": ["space"],
        "debugger": "legacy",
    }
    # Of workers as well as of the driver alone.
    assert (environment["A"], environment["NCCL_ALGO"]) == ("1", "Ring")
    assert environment == {**job.runtime_env["env_vars"], **job.driver_env}


def test_what_is_not_there_has_no_size(tmp_path: Path) -> None:
    request = gate.request(*asked(tmp_path))
    assert (request["files"], request["reward"], request["accept"]) == ({}, None, [])
