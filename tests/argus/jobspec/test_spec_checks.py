from __future__ import annotations

import math
from typing import Any

import pytest
from jobs import MINIMAL, MISSING, NEWEST, findings_of, jobspec

from argus.common.findings import ERROR
from argus.jobspec.environment import OWNED_PARTS
from argus.jobspec.parse import parse_jobspec
from argus.jobspec.spec_checks import version_findings
from argus.jobspec.verl_releases import Profile

# Values of a key, each with a finding about that key.
MALFORMED: dict[str, list[Any]] = {
    "workload": [MISSING, "dpo", "GRPO"],
    "code_path": [MISSING, "verl 0.9", "../verl", "/private/", "/privateer/verl", "/private/$(id)", "-verl"],
    "model": [MISSING, "Qwen/Qwen2.5-0.5B", "/root/.cache/model", "/private/../etc", "", "/private/${oc.env:HF_TOKEN}"],
    "dataset": [None, "gsm8k/train.parquet", "/data/gsm8k", "/private/a\nb"],
    "workflow": ["grpo"],
    "ray.adress": ["http://x"],
    "ray.resources.num_cpus": [1],
    "resources.nodes": [2],
    "ray": [["http://x"]],
    "ray.resources": [1],
    "resources": [2, "nnodes=2"],
    "resources.nnodes": ["two", 0, True],
    "resources.gpus_per_node": [1.5, -1, False],
    "env_vars": [["A"], "A"],
    "ray.resources.entrypoint_num_cpus": ["all", -1, 0.00009, math.nan, math.inf],
    "ray.resources.entrypoint_resources": [1, {"worker_node": 1, "CPU": 1}, {"worker_node": 1, "GPU": 1}, {}],
    "submission_id": ["Grpo", "a/b", ".hidden", "a" * 64, "a b", "a\n"],
    "resources.entrypoint_num_cpus": [1],
    "shared_root": ["private", "/private/../etc"],
    "reward_fn_path": ["/home/ann/r.py", "rewards", "../r.py", "r.py:", "r.py:a-b", "a.class:f", "$A/r.py"],
    "ray.runtime_env": [["A"]],
    **{f"ray.runtime_env.{part}": ["x"] for part in OWNED_PARTS},
    "ray.runtime_env.nsight": [1],
    "ray.runtime_env.rocprof_sys": [{1: 2}],
    "ray.runtime_env.env_vars": [["A"]],
    "ray.runtime_env.env_vars.HF_TOKEN": ["x"],
    "ray.runtime_env.config": [5],
    "ray.runtime_env.config.setup_timeout_seconds": [0, True],
    "ray.runtime_env.config.eager_install": [1],
    "env_vars.RAY_AUTH_TOKEN": ["x"],
    "env_vars.RAY_DEBUG": [1],
    "env_vars.1A": ["x"],
    "env_vars.A": [None, ["x"], {"b": 1}, "postgres://u:p@db/x", "\x1b[31m"],
    "env_vars.VERL_FILE_LOGGER_PATH": ["/x"],
    "ray.address": ["head:8265", "file:///etc/passwd"],
    "tags.by": ["hf_0123456789abcdefgh"],
    "trainer_overrides.a": ["hf_0123456789abcdefgh"],
    "trainer_overrides": ["trainer.save_freq=1", 7, ["a.b"], ["=1"], ["~"], ["+=1"], [{"a": 1}], [None], {"": 2}],
    "trainer_overrides.custom_reward_function.path": ["/x.py"],
    "env_vars.ARGUS_VERL_JOB": ["x"],
    "secrets": [{"HF_TOKEN": "x"}],
    "launcher": ["mpirun", "torchrun"],
    "env_vars.ROCR_VISIBLE_DEVICES": ["0"],
    "retries": [-1, 101, True, "often", False],
    "deadline": ["soon", "", "1h 30m", "3651d"],
    "priority": [1001, "high"],
    "queue_patience": ["5w"],
    "wait_for_resources": ["5w", "30m1h", "inf"],
    "start_timeout": ["an hour"],
    "stall_timeout": ["-5", "m", False],
    "on_stall": ["kill"],
    "resume_from": ["jobs/grpo-1", "grpo-1~2", ""],
    "debugger": ["pdb", True],
    "tags.team": [["a"], {"a": 1}],
    "tags": [["a"], "mine"],
    "accept": [["everything"], {"space": True}],
    "check_reward": [-1, 1],
    "env_vars.RAY_DEBUG_POST_MORTEM": [1],
    "depends_on": ["A"],
    "command": ["echo a"],
    "module": ["dapo/main.py", "recipe.", 7],
    "config_name": ["dapo"],
    "before": [{"a": 1}, "curl -H hf_0123456789abcdefgh"],
    "resources.gpus": [1, -1],
}
RUNS: dict[Any, Any] = {
    "workload": "command",
    **dict.fromkeys(("model", "dataset", "code_path"), MISSING),
    "command": "echo a",
}
# Changes of the smallest JobSpec, and the key of the finding.
ELSEWHERE: list[tuple[dict[Any, Any], str]] = [
    ({True: 1}, "True"),
    ({"shared_root": "/shared", "dataset": "/private/datasets/x"}, "dataset"),
    ({"workload": "sft", "reward_fn_path": "r.py"}, "reward_fn_path"),
    ({"env_vars": {True: "x"}}, "env_vars.True"),
    ({"trainer_overrides": ["trainer.default_local_dir = /tmp"]}, "trainer_overrides.trainer.default_local_dir"),
    ({"secrets": ["HF_TOKEN=hf_abc"]}, "secrets.HF_TOKEN=hf_abc"),
    ({"secrets": ["RAY_AUTH_TOKEN"]}, "secrets.RAY_AUTH_TOKEN"),
    ({"secrets": ["MINE"], "env_vars": {"MINE": 1}}, "secrets.MINE"),
    *(
        ({"resume_from": "grpo-1", "trainer_overrides": [f"++{key}=x"]}, f"trainer_overrides.{key}")
        for key in ("trainer.resume_mode", "trainer.resume_from_path")
    ),
    ({"check_reward": 65, "reward_fn_path": "r.py"}, "check_reward"),
    (
        {"trainer_overrides": ["data.train_batch_size=8", "+data.train_batch_size=16"]},
        "trainer_overrides.data.train_batch_size",
    ),
    ({"trainer_overrides": {"a.b": 1, "a": {"b": 2}}}, "trainer_overrides.a.b"),
    ({**RUNS, "command": MISSING}, "command"),
    ({**RUNS, "command": ["x", "hf_0123456789abcdefgh"]}, "command"),
    ({**RUNS, "model": "tiny-qwen2"}, "model"),
    ({**RUNS, "trainer_overrides": ["a=1"]}, "trainer_overrides"),
    ({**RUNS, "resources": {"pools": {"rollout": {"nnodes": 1}}}}, "resources.pools"),
    ({**RUNS, "resources": {"gpus": 1, "nnodes": 1}}, "resources.gpus"),
    ({"workload": "sft", "resources": {"pools": {"rollout": {"nnodes": 1}}}}, "resources.pools"),
    ({"module": "a.b", "launcher": "torchrun", "workload": "sft"}, "module"),
]


def below(key: str, value: Any) -> dict[str, Any]:
    """The changes that give a key, with dots, its value."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)


CASES = [*((below(key, value), key) for key, values in MALFORMED.items() for value in values), *ELSEWHERE]


@pytest.mark.parametrize(("changes", "key"), CASES, ids=[str(case[0])[:60] for case in CASES])
def test_a_malformed_jobspec(changes: dict[Any, Any], key: str) -> None:
    findings = findings_of(changes)
    assert key in {finding.key for finding in findings}
    assert {finding.severity for finding in findings} == {ERROR}


@pytest.mark.parametrize(
    ("key", "near"), [("Dataset", "dataset"), ("ray.adress", "address"), ("ray.runtime_env.nsigt", "nsight")]
)
def test_a_misspelt_key_has_a_hint(key: str, near: str) -> None:
    assert [finding.remedy for finding in findings_of(below(key, "x"))] == [f'did you mean "{near}"?']


@pytest.mark.parametrize(
    ("resources", "keys"),
    [
        # What keeps the driver off the head needs an amount.
        ({"worker_node": 0}, [""]),
        ({"worker_node": 0.0, "b": 0.01}, []),
        ({"a": 0.0001}, []),
        *(({"worker_node": 1, "a": amount}, [".a"]) for amount in (-1, 0.00009, "1", None, True)),
    ],
)
def test_resources_of_the_driver(resources: dict[str, Any], keys: list[str]) -> None:
    findings = findings_of({"ray": {"resources": {"entrypoint_resources": resources}}})
    assert [finding.key for finding in findings] == [f"ray.resources.entrypoint_resources{key}" for key in keys]


VALID: list[dict[str, Any]] = [
    {"secrets": ["HF_TOKEN", "_mine"]},
    {"resume_from": "grpo-1", "trainer_overrides": {"trainer.save_freq": 5}},
    {"trainer_overrides": {"trainer.resume_mode": "disable"}},
    {"tags": {"team": "a", "try": 2, "none": None}},
    {"accept": ["space", "requirements"]},
    {"check_reward": 0},
    RUNS,
    {**RUNS, "code_path": "verl-0.9.1", "resources": {"gpus": 0.5}, "before": "docker run x"},
    {**RUNS, "resources": {"nnodes": 2}},
    {"module": "recipe.dapo.main_dapo", "config_name": "dapo"},
    {"deadline": "3650d"},
    # A group that is replaced, and one in two packages.
    {"trainer_overrides": ["~data.sampler", "+data.sampler=x", "actor@a.b=x", "actor@c.d=x"]},
    {"env_vars": {"A": "x", "_b": 1, "C2": 0.5, "D": True, "TOKENIZER": "x", "TOKENIZERS_PARALLELISM": "false"}},
    {"ray": {"address": "https://head:8265", "resources": {"entrypoint_num_cpus": 0}}},
    {"code_path": "a" * 63, "model": "A.b_c-1", "dataset": "/private/x"},
    {"shared_root": "/mnt", "model": "/mnt/x/y"},
    {"reward_fn_path": "sub/r.py"},
    {"ray": {"runtime_env": {"env_vars": {"A": 1}, "config": {"setup_timeout_seconds": -1, "eager_install": False}}}},
    {"ray": {"runtime_env": {"nsight": {"t": "cuda"}, "rocprof_sys": "default"}}},
    {"reward_fn_path": "/private/r.py:_score2"},
]


@pytest.mark.parametrize("changes", VALID, ids=str)
def test_valid_values(changes: dict[str, Any]) -> None:
    assert findings_of(changes) == []


# --- The release of verl ----------------------------------------------------------------------------------------------


def finding_keys(profile: Profile = NEWEST, **changes: Any) -> list[str]:
    return [finding.key.removeprefix("trainer_overrides.") for finding in version_findings(jobspec(**changes), profile)]


OLDEST = Profile("0.8.0", (0, 8, 0))


def test_the_device_of_an_sft_job() -> None:
    on_cpu = {"workload": "sft", "trainer_overrides": {"trainer.device": "cpu"}}
    assert finding_keys(OLDEST, **on_cpu) == ["trainer.device"]
    assert finding_keys(**on_cpu) == []
    assert finding_keys(workload="sft", trainer_overrides=["~trainer.device"]) == ["trainer.device"]
    # Only SFT has its device on the driver; under torchrun, the GPUs of the workers decide.
    assert finding_keys(trainer_overrides={"trainer.device": "npu"}) == []
    assert finding_keys(launcher="torchrun", **on_cpu) == ["trainer.device"]


def test_overrides_that_a_release_does_not_read() -> None:
    renamed = "custom_reward_function.reward_kwargs.a"
    overrides = [f"+{renamed}=1", "trainer.logger=[console,trackio,nothing]", "data.seed=1"]
    assert finding_keys(trainer_overrides=overrides) == [renamed, "trainer.logger"]
    assert finding_keys(OLDEST, trainer_overrides=overrides) == ["trainer.logger"]
    assert finding_keys(trainer_overrides=["trainer.logger=['file',\"a\",b]"]) == ["trainer.logger"] * 2
    assert finding_keys(trainer_overrides=["trainer.logger=console"]) == []


def test_an_override_that_the_jobspec_controls_is_reported_once() -> None:
    findings, spec = parse_jobspec({**MINIMAL, "trainer_overrides": {"custom_reward_function.path": "/x.py"}})
    assert len(findings) == 1
    assert spec and version_findings(spec, NEWEST) == []
