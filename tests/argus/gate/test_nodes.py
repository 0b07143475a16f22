"""Requests of the gate to nodes, its findings from their answers, which this process gives; hints about overrides."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from composed_config import put
from gate_job import CODE, parsed, shared_root

from argus.checks.paths import check_node
from argus.checks.request import CheckRequest, Configuration, Facts
from argus.common.findings import WARNING, Finding
from argus.gate import nodes
from argus.gate.composition import Composition, Refusal
from argus.gate.config import JobConfig
from argus.gate.nodes import PLACEHOLDER, Inspection, ask_nodes, check_request, findings_of_nodes, inspect_job
from argus.jobspec.capacity import Cluster
from argus.jobspec.plan import Job, plan_job
from argus.jobspec.spec import JobSpec
from argus.jobspec.verl_releases import Profile, profile_of

WORKERS = {"b": "worker-1", "a": "worker-0", "c": "worker-2"}
GOOD = Inspection((), Composition(config=None, yaml="trainer: {}\n"), Facts(train_rows=7))


def about(key: str, problem: str, severity: str = "error", remedy: str = "correct it") -> Finding:
    return Finding(key, problem, remedy, severity, key=key)


def planned(root: Path, **changes: Any) -> tuple[JobSpec, Job]:
    spec = parsed(root, **changes)
    return spec, plan_job(spec, Cluster("cpu", 2, 4, 48), "x", "grpo-1", Profile("0.9.1", (0, 9, 1)))


@pytest.mark.parametrize(("program", "keys"), [("sh", []), ("/bin/sh", []), ("lm_evil", ["command"])])
def test_the_program_of_a_command(program: str, keys: list[str], tmp_path: Path) -> None:
    request = CheckRequest(str(tmp_path), "command", "", "", "")
    assert [finding.key for finding in inspect_job(request, program, []).findings] == keys


class FakeConnection:
    """Ray with three workers: `answers` by the name of the node, "" for the inspection of the job, on worker-0."""

    def __init__(self, answers: dict[str, Any] | None = None, problem: str = "") -> None:
        self.answers = {"worker-1": [], "worker-2": [], "": GOOD, **(answers or {})}
        self.problem = problem
        self.started: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = []
        self.closed = threading.Event()
        self.seconds = 0.0
        self.ray = SimpleNamespace(shutdown=self.closed.set)

    def start_on(self, node_id: str, function: Callable[..., Any], *arguments: Any) -> int:
        self.started.append((node_id, function, arguments))
        return len(self.started)

    def results(self, started: dict[str, int], seconds: float) -> tuple[dict[str, Any], dict[str, str]]:
        assert not self.closed.is_set()
        self.seconds = seconds
        values = {name: answer for name, answer in self.answers.items() if not isinstance(answer, Exception)}
        problems = {name: str(answer) for name, answer in self.answers.items() if isinstance(answer, Exception)}
        assert set(started) == {*values, *problems}
        return values, problems


def ours(root: Path) -> dict[str, Any]:
    """A composed configuration with the settings that the JobSpec controls."""
    return {
        "trainer": {"nnodes": 2, "n_gpus_per_node": 4, "default_local_dir": f"{root}/jobs/grpo-1/checkpoints"},
        "algorithm": {"adv_estimator": "grpo"},
        "ray_kwargs": {"ray_init": {"num_cpus": None, "runtime_env": {"py_executable": None}}},
        "reward": {"custom_reward_function": {"path": f"{root}/user/code/r.py", "name": "digit_share"}},
    }


def output(root: Path) -> str:
    """The directory that Hydra writes to."""
    return f"{root}/jobs/grpo-1/config/hydra/."


def ask(
    root: Path, answers: dict[str, Any] | None = None, connection: FakeConnection | None = None, **changes: Any
) -> Inspection:
    spec, job = planned(root, **changes)
    fake: Any = connection or FakeConnection(answers)
    return ask_nodes(spec, job, "0.9.1", WORKERS, lambda: fake)


def test_every_worker_checks_the_shared_root_and_one_inspects_the_job(root: Path) -> None:
    connection = FakeConnection()
    spec, job = planned(root, trainer_overrides=["~trainer.user", "+data@x.y='a=b'"])
    assert ask_nodes(spec, job, "0.9.1", WORKERS, lambda: connection) == Inspection(  # type: ignore[arg-type]
        (), GOOD.composition, Facts(train_rows=7)
    )
    request = check_request(spec, job)
    (node_id, function, arguments), *elsewhere = connection.started
    assert elsewhere == [(worker, check_node, (request,)) for worker in WORKERS if worker != "a"]
    assert (node_id, function, arguments[:2]) == ("a", inspect_job, (request, "verl.trainer.main_ppo"))
    assert [override for _key, override in arguments[2]] == list(job.plan.overrides)
    assert "tensorboard" in arguments[3]
    assert arguments[2][-2:] == [("trainer.user", "~trainer.user"), ("data", "+data@x.y='a=b'")]
    assert connection.seconds == 60.0
    assert connection.closed.wait(10)


@pytest.mark.parametrize(
    "override", ["trainer.logger=[console,file]", "trainer.logger=[console,wandb]", "trainer.log_val_generations=8"]
)
def test_tensorboard_is_no_default_beside_other_loggers_and_samples(root: Path, override: str) -> None:
    connection = FakeConnection()
    ask(root, connection=connection, trainer_overrides=[override])
    assert connection.started[0][2][3] == ""


def test_ray_that_does_not_answer(root: Path) -> None:
    connection = FakeConnection(problem="Ray did not answer within 20 s")
    assert [finding.key for finding in ask(root, connection=connection).findings] == ["cluster"]
    assert connection.started == []


def test_nodes_that_do_not_answer(root: Path) -> None:
    answers = {"worker-2": TimeoutError("no answer within 60 s"), "": RuntimeError("OSError: no memory")}
    answers["worker-1"] = [about("model", "is missing")]  # type: ignore[assignment]
    findings = [(finding.key, finding.problem.split()[0]) for finding in ask(root, answers).findings]
    assert findings == [("cluster", "worker-2"), ("cluster", "worker-0"), ("model", "worker-1:")]


def test_all_findings_of_an_inspection(root: Path) -> None:
    """First what Hydra refuses, then what the checks found, then the settings, then the nodes."""
    trainer = {"n_gpus_per_node": 3, "logger": ["wandb"], "save_freq": 1}
    config = put(ours(root), {f"trainer.{key}": value for key, value in trainer.items()})
    refusals = (
        Refusal("Key 'save_frq' is not in struct\n  full_key: trainer.save_frq", "trainer.save_frq"),
        Refusal("Could not find 'actor/x'", "actor"),
        Refusal("LexerNoViableAltException: a b."),
    )
    answer = Inspection(
        (about("model", "has no weights", WARNING),),
        Composition(config, "y", output(root), refusals),
        Facts(),
        on_node=(about("shared_root", "is not writable"),),
    )
    result = ask(root, {"": answer})
    assert [(finding.key, finding.severity) for finding in result.findings] == [
        ("trainer_overrides.trainer.save_frq", "error"),
        ("trainer_overrides.actor", "error"),
        ("trainer_overrides", "error"),
        ("model", "warning"),
        ("trainer.n_gpus_per_node", "error"),
        ("trainer.logger", "warning"),
        ("shared_root", "error"),
    ]
    assert result.findings[0].remedy == "did you mean trainer.save_freq?"
    # With the environment of the job.
    with_key = ask(root, {"": answer}, secrets=["WANDB_API_KEY"]).findings
    assert "trainer.logger" not in [finding.key for finding in with_key]
    assert (result.composition.yaml, result.facts) == ("y", Facts())


def composed(root: Path, changes: dict[str, Any], **job: Any) -> list[str]:
    """The findings about settings that the JobSpec controls, in a configuration with some changes by dotted keys."""
    where = job.pop("output", output(root))
    result = ask(root, {"": Inspection((), Composition(put(ours(root), changes), "", where), Facts())}, **job).findings
    return [finding.key for finding in result]


REWARD = "reward.custom_reward_function"
LOCAL_DIR = "trainer.default_local_dir"
COMPOSED: list[tuple[dict[str, Any], list[str]]] = [
    ({"critic.optim": None, "ray_kwargs.ray_init.log_to_driver": False}, []),
    *(({key: value}, [key]) for key, value in {LOCAL_DIR: "/tmp/x", "trainer.nnodes": 1}.items()),
    *(({f"ray_kwargs.ray_init.{key}": 8}, [f"ray_kwargs.ray_init.{key}"]) for key in ("num_cpus", "address")),
    ({"ray_kwargs.ray_init.runtime_env": {"env_vars": {"A": "1"}}}, ["ray_kwargs.ray_init.runtime_env"]),
    ({f"{REWARD}.path": "/x.py", f"{REWARD}.name": "f"}, [f"{REWARD}.path", f"{REWARD}.name"]),
    # ~trainer deletes it.
    ({"trainer": None}, [LOCAL_DIR, "trainer.nnodes", "trainer.n_gpus_per_node"]),
    # No resolver may read a secret, because the configuration is archived.
    ({"data.x": PLACEHOLDER}, ["data.x"]),
    ({"data.x": [1, {"a": PLACEHOLDER}]}, ["data.x[1].a"]),
    ({"data.x": {PLACEHOLDER: 1}}, ["data.x"]),
]


@pytest.mark.parametrize(("changes", "keys"), COMPOSED)
def test_what_was_composed_is_what_the_jobspec_says(root: Path, changes: dict[str, Any], keys: list[str]) -> None:
    assert composed(root, changes) == keys


def test_a_reward_function_that_the_jobspec_does_not_have(root: Path) -> None:
    assert composed(root, {f"{REWARD}.name": None}, reward_fn_path=None) == [f"{REWARD}.path"]


@pytest.mark.parametrize("where", ["/tmp/x/.", "", "{root}/jobs/grpo-1/config/hydra/.hydra"])
def test_hydra_writes_into_the_archive(root: Path, where: str) -> None:
    assert composed(root, {}, output=where.format(root=root)) == ["hydra.run.dir"]


def test_findings_of_several_nodes_are_reported_once() -> None:
    same, other = about("model", "/m does not exist"), about("dataset", "/d does not exist", remedy="stage it")
    warning = replace(same, severity=WARNING)
    assert findings_of_nodes({"worker-2": [same], "worker-0": [same, other], "worker-1": [warning]}) == [
        about("model", "worker-0, worker-2: /m does not exist"),
        about("dataset", "worker-0: /d does not exist", remedy="stage it"),
        about("model", "worker-1: /m does not exist", WARNING),
    ]


# --- The request ------------------------------------------------------------------------------------------------------


def test_the_request(root: Path) -> None:
    files = (
        f"{CODE}/mvp_marker.py",
        "common/models/tiny/config.json",
        "datasets/gsm8k/train.parquet",
        "user/code/r.py",
    )
    # The head does not have this one.
    (root / "datasets/gsm8k/val.parquet").unlink()
    spec, job = planned(
        root, accept=["space"], debugger="legacy", env_vars={"A": "1", "NCCL_ALGO": "Ring"}, secrets=["MY_TOKEN"]
    )
    request = check_request(spec, job)
    assert replace(request, environment={}) == CheckRequest(
        shared_root=str(root),
        workload="grpo",
        code_path=f"{root}/{CODE}",
        model=f"{root}/common/models/tiny",
        dataset=f"{root}/datasets/gsm8k",
        reward_file=f"{root}/user/code/r.py",
        reward_function="digit_share",
        files={str(root / name): (root / name).stat().st_size for name in files},
        accept=("space",),
        debugger="legacy",
    )
    # The variables of workers and those of the driver alone; secrets have a placeholder.
    assert request.environment == {**job.runtime_env["env_vars"], **job.plan.driver_env, "MY_TOKEN": PLACEHOLDER}


# --- On the worker ----------------------------------------------------------------------------------------------------


def test_the_path_of_the_image_follows_that_of_the_job(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is asked, because only nodes know what their image sets."""
    calls: list[tuple[str, str]] = []

    def compose(_code: str, _module: str, _overrides: object, environment: dict[str, str], *_: str) -> Composition:
        calls.append(("compose", environment.get("PYTHONPATH", "none")))
        return Composition({"data": {}})

    def check(request: CheckRequest) -> tuple[list[Finding], Facts]:
        calls.append(("check", request.environment.get("PYTHONPATH", "none")))
        assert request.config == Configuration({"data": {}})
        return [], Facts(steps=1)

    monkeypatch.setattr(nodes, "compose", compose)
    monkeypatch.setattr(nodes, "check_worker", check)
    request = check_request(*planned(root))
    path = request.environment["PYTHONPATH"]
    monkeypatch.setenv("PYTHONPATH", "/opt/a::/opt/b")
    answer = inspect_job(request, "m", ())
    assert (answer.python_path, answer.facts, answer.on_node) == ("/opt/a::/opt/b", Facts(steps=1), ())
    assert calls == [("compose", f"{path}:/opt/a:/opt/b"), ("check", f"{path}:/opt/a:/opt/b")]
    monkeypatch.delenv("PYTHONPATH")
    assert inspect_job(replace(request, environment={}), "m", ()).python_path == ""
    assert calls[-1] == ("check", "none")
    # It is also checked for what every worker is checked for.
    (root / "jobs").rmdir()
    assert [one.key for one in inspect_job(request, "m", ()).on_node] == ["shared_root"]


def test_the_module_of_a_reward_function_is_the_expected_setting(root: Path) -> None:
    spec, job = planned(root, reward_fn_path="r:digit_share")
    request = check_request(spec, job)
    assert (request.reward_file, request.reward_module) == (f"{root}/user/code/r.py", "r")
    expected = {"path": "pkg://r", "name": "digit_share"}
    for function, keys in ((expected, []), ({**expected, "path": "x"}, ["reward.custom_reward_function.path"])):
        composed = Composition(config={"reward": {"custom_reward_function": function}})
        findings = nodes.owned_findings(composed, job, request)
        assert [finding.key for finding in findings if "reward" in finding.key] == keys


# Settings of verl 0.9.1.
CONFIG: dict[str, Any] = {
    "actor_rollout_ref": {
        "actor": {"optim": {"lr": 1e-6}, "use_kl_loss": True, "strategy": "fsdp", "ppo_micro_batch_size": None},
        "ref": {"log_prob_micro_batch_size": None, "log_prob_micro_batch_size_per_gpu": None},
        "rollout": {"n": 5, "log_prob_micro_batch_size": None, "log_prob_micro_batch_size_per_gpu": None},
    },
    "algorithm": {"adv_estimator": "grpo"},
    "critic": {"enable": None, "optim": {"lr": 1e-5}, "strategy": "fsdp"},
    "data": {"train_batch_size": 8, "val_batch_size": 8, "gen_batch_size": 8},
    "reward": {"reward_model": {"enable": False, "nnodes": 0, "model_path": None}},
    "trainer": {"nnodes": 1, "save_freq": -1, "resume_mode": "auto", "max_actor_ckpt_to_keep": None, "foo_bar": 1},
}
PROFILE = profile_of("0.9.1")


def job(**algorithm: Any) -> JobConfig:
    config = {**CONFIG, "algorithm": {**CONFIG["algorithm"], **algorithm}}
    return JobConfig(config, "grpo", 1, 8, (0, 9, 1))


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("lr", "did you mean actor_rollout_ref.actor.optim.lr?"),
        ("optim.lr", "did you mean actor_rollout_ref.actor.optim.lr?"),
        ("trainer.save_frequency", "did you mean trainer.save_freq?"),
        ("data.batch_size", "did you mean data.val_batch_size or data.gen_batch_size or data.train_batch_size?"),
        # It would be refused next.
        ("nnodes", "set resources.nnodes"),
        ("retrys", "did you mean retries?"),
        ("retries", "it is a key of the JobSpec: write it beside trainer_overrides"),
        ("actor_rollout_ref.actor.micro_rollout_batch_size", ""),
        ("actor_rollout_ref.actor.remove_clip", ""),
        ("remove_previous_ckpt", ""),
        # Nothing reads that one either.
        ("foo_bar", ""),
    ],
)
def test_a_hint_is_a_setting_that_the_job_reads(key: str, expected: str) -> None:
    assert nodes.hint_for(key, job(), PROFILE, ["trainer.foo_bar"]) == expected


def test_the_parts_of_a_job_and_its_release_decide() -> None:
    assert "log_prob_micro_batch_size_per_gpu instead" in nodes.hint_for("log_prob_micro_batch_size", job(), PROFILE)
    assert nodes.hint_for("optim.lr", job(adv_estimator="gae"), PROFILE).endswith("actor.optim.lr or critic.optim.lr?")


def test_what_changes_nothing_is_a_warning(tmp_path: Any) -> None:
    keys = ["critic.optim.lr", "reward.reward_model.model_path", "reward.reward_model.enable", "data.val_batch_size"]
    overrides = [*(f"{key}=1" for key in keys), "+recipe=dapo", "actor_rollout_ref.ref.log_prob_micro_batch_size=2"]
    spec = parsed(shared_root(tmp_path), trainer_overrides=overrides)
    findings = list(nodes.unread_findings(spec, ["recipe"], job(), "0.9.1"))
    assert [finding.key.removeprefix("trainer_overrides.") for finding in findings] == [*keys[:2], "recipe"]
    assert {finding.severity for finding in findings} == {WARNING}
    assert list(nodes.unread_findings(spec, [], job(adv_estimator="gae"), "0.9.1")) == findings[1:2]
