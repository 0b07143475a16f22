"""The gate as a pure machine: the head, the nodes and the clock are arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from gate_job import checkpoint, parsed, snapshot
from jobs import planned

from argus.checks.request import Configuration, Facts
from argus.common.findings import Finding
from argus.gate.composition import Composition, Refusal
from argus.gate.gate import GateResult, examine, with_queue
from argus.gate.nodes import Inspection
from argus.jobspec.parse import parse_jobspec
from argus.jobspec.plan import Job
from argus.jobspec.spec import JobSpec
from argus.queue.demand import Demand
from argus.queue.room import PLACEMENT_GROUPS, Room
from argus.ray.records import WorkerCapacity

NOW = 1000.0


def ray_node(name: str, state: str = "ALIVE", gpus: int = 4, labels: dict[str, str] | None = None) -> dict[str, Any]:
    total = {"GPU": gpus, "CPU": 48, "worker_node": 1} if name != "head" else {"CPU": 8}
    labels = {"argus.verl/accelerator": "cpu"} if labels is None else labels
    place = {"node_name": name, "node_id": f"id-{name}", "node_ip": f"10.0.0.{len(name)}"}
    return {**place, "state": state, "resources_total": total, "labels": labels}


def free_node(name: str, gpus: float = 4) -> WorkerCapacity:
    return WorkerCapacity(name, f"id-{name}", gpus=4, cpus=48, free_gpus=gpus, free_cpus=48)


@dataclass
class FakeHead:
    """A head with two workers, whose GPUs are all free."""

    ray_nodes: list[dict[str, Any]] = field(
        default_factory=lambda: [ray_node("head"), ray_node("worker-1"), ray_node("worker-0"), ray_node("w", "DEAD")]
    )
    free_nodes: list[WorkerCapacity] = field(default_factory=lambda: [free_node("worker-0"), free_node("worker-1")])
    ray_jobs: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    looked: list[str] = field(default_factory=list)
    since: float | None = None

    def nodes(self) -> list[dict[str, Any]]:
        return self.ray_nodes

    def jobs(self) -> list[dict[str, Any]]:
        self.looked.append("jobs")
        return self.ray_jobs

    def get(self, path: str) -> Any:
        assert path == PLACEMENT_GROUPS
        self.looked.append("groups")
        return {"data": {"result": {"result": self.groups}}}

    def capacity(self, since: float | None = None) -> list[WorkerCapacity]:
        self.since = since
        return self.free_nodes


@dataclass
class FakeNodes:
    """Nodes that give an answer, and record the requests."""

    answer: Inspection = field(default_factory=Inspection)
    requests: list[tuple[JobSpec, Job, str, Mapping[str, str]]] = field(default_factory=list)

    def __call__(self, spec: JobSpec, job: Job, version: str, workers: Mapping[str, str]) -> Inspection:
        self.requests.append((spec, job, version, workers))
        return self.answer


BUSY = [free_node("worker-0", gpus=1), free_node("worker-1", gpus=0)]


def gate(root: Path, head: FakeHead | None = None, nodes: FakeNodes | None = None, **changes: Any) -> GateResult:
    return examine(parsed(root, **changes), "grpo-1", head or FakeHead(), nodes or FakeNodes(), lambda: NOW)


def test_a_job_without_problems(root: Path) -> None:
    head, nodes = FakeHead(), FakeNodes(Inspection((), Composition(yaml="trainer: {}\n"), Facts(train_rows=3)))
    result = gate(root, head, nodes)
    job = result.job
    assert job
    room = Room(tuple(head.free_nodes))
    facts = Facts(train_rows=3, workers=["worker-0", "worker-1"])
    assert result == GateResult((), job, "", "", room, "trainer: {}\n", facts)
    assert (job.submission_id, job.archive) == ("grpo-1", f"{root}/jobs/grpo-1")
    assert (job.plan.code_id, job.plan.nnodes, job.plan.gpus_per_node) == ("verl-0.9.1", 2, 4)
    # Only workers that are alive get a request.
    assert nodes.requests == [(parsed(root), job, "0.9.1", {"id-worker-0": "worker-0", "id-worker-1": "worker-1"})]
    # Ray measures what is free every few seconds: only what it measured after the gate began counts.
    assert head.since == NOW


def test_findings_of_the_head_come_first_and_nodes_are_asked_all_the_same(root: Path) -> None:
    (root / "datasets/gsm8k/val.parquet").unlink()
    nodes = FakeNodes(Inspection((Finding("model", "has no weights", "stage it", key="model"),)))
    result = gate(root, FakeHead(free_nodes=BUSY), nodes, resources={"nnodes": 3})
    assert [finding.key for finding in result.findings] == ["dataset", "resources.nnodes", "model"]
    # The present capacity does not matter to a job that can never run.
    assert result.capacity_problem == ""


@pytest.mark.parametrize("accept", [[], ["release"]])
def test_the_rules_of_a_newer_verl_are_warnings(root: Path, accept: list[str]) -> None:
    snapshot(root / "common/code/verl/other", "0.10.0.dev0")
    changes = {"code_path": "other", "trainer_overrides": ["reward_model.enable=True"], "accept": accept}
    result = gate(root, **changes)
    assert result.job
    keys = [finding.key for finding in result.findings if finding.severity == "warning"]
    assert keys == ["trainer_overrides.reward_model.enable", *([] if accept else ["code_path"])]
    assert len(keys) == len(result.findings)


@pytest.mark.parametrize("version", ["0.7.1", "unknown"])
def test_a_job_that_cannot_be_planned(root: Path, version: str) -> None:
    snapshot(root / "common/code/verl/other", version)
    nodes = FakeNodes()
    result = gate(root, nodes=nodes, code_path="other")
    assert result.job is None and nodes.requests == []
    assert [finding.key for finding in result.findings] == ["code_path"]


def test_a_command(root: Path) -> None:
    """It needs neither model nor verl, and counts the GPUs of its driver."""
    nodes = FakeNodes(Inspection(python_path="/image"))
    script = f"{root}/user/code/r.py"
    values = {"workload": "command", "command": ["python3", script], "resources": {"gpus": 2}, "shared_root": str(root)}
    findings, spec = parse_jobspec(values)
    assert spec and not findings
    result = examine(spec, "command-1", FakeHead(), nodes, lambda: NOW)
    assert result.job and not result.findings and not result.capacity_problem
    plan = result.job.plan
    assert (plan.command, plan.overrides, plan.directory) == (("python3", script), (), f"{result.job.archive}/output")
    assert (plan.gpus, Demand.of(plan).all_gpus, plan.transfer_queue) == (2, 2, False)
    assert result.job.runtime_env["env_vars"]["PYTHONPATH"].split(":") == [f"{root}/user/code", "/image"]
    assert list(result.files.values()) == [script]
    few = examine(spec.model_copy(update={"gpus": 5}), "command-1", FakeHead(), nodes, lambda: NOW)
    assert [finding.key for finding in few.findings] == ["ray.resources"]
    later = examine(spec, "command-1", FakeHead(free_nodes=BUSY), nodes, lambda: NOW)
    assert [finding.key for finding in later.findings] == ["resources"]


def test_settings_that_another_module_does_not_have(root: Path) -> None:
    refusals = tuple(
        Refusal(f"Key '{key}' is not in struct", key) for key in ("trainer.val_before_train", "trainer.unknown")
    )
    nodes = FakeNodes(Inspection(composition=Composition({"trainer": {}}, errors=refusals)))
    result = gate(root, nodes=nodes, module="recipe.own", trainer_overrides=["trainer.unknown=1"])
    assert result.job
    kept = [override.partition("=")[0] for override in result.job.plan.overrides]
    assert "trainer.val_before_train" not in kept and "trainer.unknown" in kept
    assert [(finding.key, finding.severity) for finding in result.findings] == [("module", "note")]


@pytest.mark.parametrize(("module", "gpus"), [("recipe.own", 10), (None, 8)])
def test_gpus_in_sections_of_another_module_count(root: Path, module: str | None, gpus: int) -> None:
    composed = {"trainer": {"nnodes": 2, "n_gpus_per_node": 4}, "rollout": {"nnodes": 1, "n_gpus_per_node": 2}}
    composed["idle"] = {"enable": False, "nnodes": 1, "n_gpus_per_node": 2}
    result = gate(root, nodes=FakeNodes(Inspection(composition=Composition(composed))), module=module)
    assert result.job and result.job.plan.gpus == Demand.of(result.job.plan).all_gpus == gpus
    # Two workers with four GPUs each have no others.
    assert [finding.key for finding in result.findings] == ["resources.pools"] * bool(module)


@pytest.mark.parametrize(("workload", "keys"), [("grpo", ["code_path"]), ("sft", [])])
def test_a_verl_that_needs_gpus(root: Path, workload: str, keys: list[str]) -> None:
    snapshot(root / "common/code/verl/other", "0.8.0")
    changes = {"reward_fn_path": None} if workload == "sft" else {}
    assert [finding.key for finding in gate(root, code_path="other", workload=workload, **changes).findings] == keys


# --- Capacity ---------------------------------------------------------------------------------------------------------


def test_a_cluster_that_is_busy(root: Path) -> None:
    result = gate(root, FakeHead(free_nodes=BUSY))
    assert result.job and result.capacity_problem
    assert [(finding.key, finding.problem) for finding in result.findings] == [("resources", result.capacity_problem)]
    waits = gate(root, FakeHead(free_nodes=BUSY), wait_for_resources="2h")
    assert (waits.capacity_problem, waits.findings) == (result.capacity_problem, ())


def test_what_was_just_accepted_counts_as_taken(root: Path) -> None:
    jobs = [{"submission_id": "other", "status": "RUNNING", "metadata": Demand(1, 2, 6).to_metadata(), "job_id": "01"}]
    head = FakeHead(ray_jobs=jobs)
    assert gate(root, head).capacity_problem.endswith(", once other has what it needs")
    # It may take its place while Ray counts: what is asked first counts as free at most once.
    assert head.looked == ["jobs", "groups", "jobs"]
    head.groups = [{"creator_job_id": "01", "state": "CREATED", "bundles": [{"unit_resources": {"GPU": 2}}]}]
    assert gate(root, head).capacity_problem == ""


def config(backend: Any = "SimpleStorage", units: Any = 8, **trainer: Any) -> Configuration:
    """The configuration of a job with a TransferQueue."""
    storage = {"storage_backend": backend, "SimpleStorage": {"num_data_storage_units": units}}
    return Configuration({"trainer": trainer, "transfer_queue": {"backend": storage}})


def queue(units: int = 8, used: bool = True) -> Inspection:
    return Inspection(composition=Composition(dict(config(units=units, use_v1=used).values)))


def test_the_queue_is_part_of_the_room(root: Path) -> None:
    nodes = FakeNodes(queue())
    result = gate(root, nodes=nodes)
    assert result.job and result.job.plan.storage_units == 8
    # 12 for the job, 4 for storage units, 2 for the driver and the controller.
    for cpus, has_room in ((18, True), (17, False)):
        head = FakeHead(free_nodes=[replace(free_node(name), free_cpus=cpus) for name in ("worker-0", "worker-1")])
        assert (gate(root, head, nodes).capacity_problem == "") is has_room
        without = FakeNodes(queue(used=False))
        assert gate(root, head, without).capacity_problem == ""


def test_storage_units_that_can_never_fit(root: Path) -> None:
    (finding,) = gate(root, nodes=FakeNodes(queue(units=100))).findings
    assert finding.key == "transfer_queue.backend.SimpleStorage.num_data_storage_units"


def test_tensorboard_is_a_logger_where_a_node_says_that_it_works(root: Path) -> None:
    def loggers(composed: list[str] | None, **changes: Any) -> str:
        config = {"trainer": {"logger": composed}} if composed else {}
        job = gate(root, nodes=FakeNodes(Inspection(composition=Composition(config))), **changes).job
        assert job
        return next(override for override in job.plan.overrides if override.startswith("trainer.logger="))

    assert loggers(["console", "file", "tensorboard"]) == "trainer.logger=[console,file,tensorboard]"
    assert loggers(["console", "file"]) == loggers(None) == "trainer.logger=[console,file]"
    overrides = {"trainer_overrides": {"trainer.logger": ["console", "tensorboard"]}}
    assert loggers(["console", "tensorboard"], **overrides) == "trainer.logger=[console,tensorboard]"


# --- Findings that several parts report -------------------------------------------------------------------------------


def test_an_override_is_reported_once(root: Path) -> None:
    key = "trainer_overrides.critic.model.fsdp_config.param_offload"
    about_it = Finding("trainer_overrides: critic.model…", "Key is not in struct", "correct it", key=key)
    other = replace(about_it, key="trainer_overrides.no.such")
    nodes = FakeNodes(Inspection((about_it, other)))
    snapshot(root / "common/code/verl/other", "0.9.0")
    overrides = {"critic.model.fsdp_config.param_offload": True}
    result = gate(root, nodes=nodes, code_path="other", trainer_overrides=overrides)
    assert [finding.key for finding in result.findings] == [key, "trainer_overrides.no.such"]
    assert result.findings[0].problem == "is not read by verl 0.9.0"


def test_what_the_job_has_anyway_is_noted_and_hides_no_problem(root: Path) -> None:
    variables = {"RAY_ADDRESS": "auto", "HF_HOME": f"{root}/hf"}
    changes = {"trainer_overrides": ["algorithm.adv_estimator=grpo", "trainer.nnodes=2"], "env_vars": variables}
    notes = gate(root, **changes).findings
    assert {finding.severity for finding in notes} == {"note"}
    keys = [finding.key.removeprefix("trainer_overrides.") for finding in notes]
    assert keys == ["algorithm.adv_estimator", "trainer.nnodes", "env_vars.RAY_ADDRESS", "env_vars.HF_HOME"]
    # The composed configuration tells whether the size is that of the job.
    mismatch = Finding("trainer.nnodes", "is 1, but the job has 2", "do", key="trainer.nnodes")
    assert gate(root, nodes=FakeNodes(Inspection((mismatch,))), **changes).findings == (mismatch,)
    # A note is no reason to leave out what Hydra says of the same override.
    key = "trainer_overrides.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"
    refused = Finding("x", "is refused", "do", key=key)
    of_size = {"trainer_overrides": ["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4"]}
    assert refused in gate(root, nodes=FakeNodes(Inspection((refused,))), **of_size).findings


def test_the_same_problem_is_reported_once(root: Path) -> None:
    (root / "user/code/r.py").unlink()
    problem = f"{root}/user/code/r.py does not exist"
    same = Finding("reward_fn_path", problem, "another hint", key="reward_fn_path")
    elsewhere = Finding("model", problem, "stage it", key="model")
    result = gate(root, nodes=FakeNodes(Inspection((same, elsewhere))))
    assert [finding.where for finding in result.findings] == ["reward_fn_path", "model"]
    assert result.findings[0].remedy != same.remedy


# --- Resuming ---------------------------------------------------------------------------------------------------------


def test_resuming(root: Path) -> None:
    path = checkpoint(root, size=8)
    result = gate(root, workload="sft", reward_fn_path=None, resume_from="sft-1")
    assert result.findings == ()
    assert result.checkpoint == str(path)
    assert result.job
    assert f"trainer.resume_from_path={path}" in result.job.plan.overrides


@pytest.mark.parametrize(("origin", "fits"), [("grpo", True), ("ppo", True), ("sft", False)])
def test_an_evaluation_of_a_checkpoint_needs_no_data_to_train_with(root: Path, origin: str, fits: bool) -> None:
    path = checkpoint(root, f"{origin}-0", size=8, part="" if origin == "sft" else "actor")
    (root / "datasets/gsm8k/train.parquet").unlink()
    result = gate(root, workload="eval", resume_from=f"{origin}-0")
    assert [finding.key for finding in result.findings] == ([] if fits else ["resume_from"])
    assert result.checkpoint == (str(path) if fits else "")


def test_sft_without_data_for_validation(root: Path) -> None:
    (root / "datasets/gsm8k/val.parquet").unlink()
    result = gate(root, workload="sft", reward_fn_path=None)
    assert result.findings == ()
    assert result.job and "data.val_files=null" in result.job.plan.overrides
    (root / "datasets/gsm8k/val.parquet").write_text("")
    again = gate(root, workload="sft", reward_fn_path=None)
    assert again.job and "data.val_files=null" not in again.job.plan.overrides


@pytest.mark.parametrize(
    ("saved", "changes", "lost"),
    [
        (["hf_model"], {"retries": 2}, {"actor_rollout_ref.actor": "model, optimizer, extra"}),
        (["model"], {"retries": 0}, {}),
        (["model", "optimizer", "extra", "hf_model"], {"retries": 2}, {}),
        (
            ["model"],
            {"retries": 1, "workload": "ppo"},
            {"actor_rollout_ref.actor": "optimizer, extra", "critic": "optimizer, extra"},
        ),
    ],
)
def test_retries_need_complete_checkpoints(
    root: Path, saved: list[str], changes: dict[str, Any], lost: dict[str, str]
) -> None:
    part = {"checkpoint": {"save_contents": saved}}
    config = {"actor_rollout_ref": {"actor": part}, "critic": {"enable": None, **part}}
    findings = gate(root, nodes=FakeNodes(Inspection(composition=Composition(config))), **changes).findings
    assert [finding.key for finding in findings] == [f"{section}.checkpoint.save_contents" for section in lost]
    assert all(f"add {parts}," in finding.remedy for finding, parts in zip(findings, lost.values(), strict=True))


@pytest.mark.parametrize(
    ("composed", "settings"),
    [
        (config(), (True, 8, "")),
        (config(units=3, use_v1=True), (True, 3, "")),
        (config(units=-1), (True, 0, "")),
        # Another check reports this one.
        (config(units="many"), (True, 8, "")),
        (Configuration({}), (False, 0, "")),
        (config(use_v1=False), (False, 0, "")),
        (config("RayStore"), (True, 0, "")),
        (config("MooncakeStore"), (True, 0, "MooncakeStore")),
        (config("Yuanrong"), (True, 0, "Yuanrong")),
        # Nothing is known about it.
        (config("Another"), (True, 0, "Another")),
    ],
)
def test_the_plan_has_the_settings_of_the_queue(composed: Configuration, settings: tuple[bool, int, str]) -> None:
    plan = with_queue(planned(), composed).plan
    assert (plan.transfer_queue, plan.storage_units, plan.exclusive_backend) == settings
    assert with_queue(sft := planned(workload="sft"), composed) == sft
