from __future__ import annotations

import json
import math
import random
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.argus.verl.plugins.module_utils.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.job.capacity import Cluster, size_findings
from ansible_collections.argus.verl.plugins.module_utils.job.durations import seconds
from ansible_collections.argus.verl.plugins.module_utils.job.options import OPTIONS, with_defaults
from ansible_collections.argus.verl.plugins.module_utils.job.parse import parse_jobspec
from ansible_collections.argus.verl.plugins.module_utils.job.plan import FORWARDED_BY_VERL, Job, plan_job
from ansible_collections.argus.verl.plugins.module_utils.job.spec import JobSpec
from ansible_collections.argus.verl.plugins.module_utils.job.spec_checks import (
    accelerator_findings,
    secret_value_findings,
    version_findings,
)
from ansible_collections.argus.verl.plugins.module_utils.job.submission_id import new_submission_id
from ansible_collections.argus.verl.plugins.module_utils.job.verl_releases import Profile
from ansible_collections.argus.verl.plugins.module_utils.launcher.checkpoints import Checkpoint
from ansible_collections.argus.verl.plugins.module_utils.launcher.hydra import (
    hydra_value,
    merge,
    override_key,
    override_list,
)
from ansible_collections.argus.verl.plugins.module_utils.shared_root import under_root

SIX_LINES = """
workload: grpo
code_path: verl-0.9.1
model: Qwen2.5-7B-Instruct
dataset: gsm8k
reward_fn_path: rewards.py:score
trainer_overrides: {data.train_batch_size: 256}
"""
MINIMAL = {"workload": "grpo", "code_path": "verl-0.9.1", "model": "tiny-qwen2", "dataset": "gsm8k_tiny"}
CPU = Cluster(accelerator="cpu", workers=2, gpus_per_node=4, cpus_per_node=48)
CUDA = Cluster(accelerator="cuda", workers=4, gpus_per_node=8, cpus_per_node=128)
NEWEST = Profile("0.9.1", (0, 9, 1))
RELEASES = [(0, 5, 0), (0, 6, 0), (0, 6, 1), (0, 7, 0), (0, 7, 1), (0, 8, 0), (0, 9, 0), (0, 9, 1)]
PROFILES = [Profile(".".join(map(str, release)), release) for release in RELEASES]


def checked(**changes: Any) -> JobSpec:
    findings, spec = parse_jobspec({**MINIMAL, **changes})
    assert findings == []
    assert spec is not None
    return spec


def findings_of(changes: dict[Any, Any]) -> list[Finding]:
    given = {key: value for key, value in {**MINIMAL, **changes}.items() if value != "left out"}
    return parse_jobspec(given)[0]


# --- What was asked for -----------------------------------------------------------------------------------------------


def test_six_lines_are_enough() -> None:
    findings, spec = parse_jobspec(yaml.safe_load(SIX_LINES))
    assert findings == []
    assert spec
    assert spec.reward_fn_path == "rewards.py:score"


def test_defaults() -> None:
    assert checked() == JobSpec(
        **MINIMAL,
        submission_id=None,
        shared_root="/private",
        reward_fn_path=None,
        address="http://127.0.0.1:8265",
        entrypoint_resources={"worker_node": 1},
        entrypoint_num_cpus=1,
        nnodes=None,
        gpus_per_node=None,
        trainer_overrides=(),
        env_vars={},
        secrets=(),
        retries=0,
        deadline=None,
        wait_for_resources=None,
        stall_timeout=1800,
        on_stall="report",
        resume_from=None,
        debugger=None,
        tags={},
        accept=(),
    )


def test_what_was_given_is_not_changed() -> None:
    given = {**MINIMAL, "shared_root": "/private/", "resources": {"nnodes": None}, "unknown": 1}
    before = json.dumps(given)
    parse_jobspec(given)
    assert json.dumps(given) == before


def test_the_options_are_not_changed() -> None:
    """Ansible's own check fills in defaults where they are kept."""
    parse_jobspec(MINIMAL)
    parse_jobspec({"ray": {"resources": 1}, "resources": []})
    assert OPTIONS["ray"]["default"] == OPTIONS["resources"]["default"] == {}
    assert OPTIONS["ray"]["options"]["resources"]["default"] == {}


def test_an_empty_value_is_as_if_not_given() -> None:
    empty = yaml.safe_load(
        """
        submission_id:
        shared_root:
        reward_fn_path:
        ray: {address: , resources: {entrypoint_resources: , entrypoint_num_cpus: }}
        resources:
        trainer_overrides:
        env_vars:
        secrets:
        retries:
        deadline:
        wait_for_resources:
        stall_timeout:
        on_stall:
        resume_from:
        debugger:
        tags:
        accept:
        """
    )
    assert checked(**empty) == checked()
    assert checked(ray={"resources": None}) == checked()
    sized = checked(resources={"nnodes": None, "gpus_per_node": 2})
    assert (sized.nnodes, sized.gpus_per_node) == (None, 2)


def test_a_slash_at_the_end_of_the_shared_root_does_not_show_in_paths() -> None:
    spec = checked(shared_root="/private/", code_path="/private/common/code/verl/x")
    assert spec.shared_root == "/private"
    assert plan_job(spec, CPU, "x", "sft-1", NEWEST).archive == "/private/jobs/sft-1"


@pytest.mark.parametrize("identifier", ["a", "0", "grpo-7b.try_2", "a" * 63])
def test_a_good_submission_id(identifier: str) -> None:
    assert checked(submission_id=identifier)["submission_id"] == identifier


def test_a_number_is_a_submission_id_too() -> None:
    assert checked(submission_id=17)["submission_id"] == "17"


NOT_A_FUNCTION = "is not a function's name"
BAD: list[tuple[dict[Any, Any], str, str]] = [
    # What is given, the key that is named, and a piece of what is said of it.
    ({"workload": "left out"}, "workload", "missing required arguments: workload"),
    ({"code_path": "left out"}, "code_path", "missing required arguments: code_path"),
    ({"model": "left out"}, "model", "missing required arguments: model"),
    ({"dataset": None}, "dataset", "missing required arguments: dataset"),
    ({"workload": "dpo"}, "workload", "value of workload must be one of: ppo, grpo, sft, got: dpo"),
    ({"workload": "GRPO"}, "workload", "value of workload must be one of"),
    ({"workflow": "grpo"}, "workflow", 'did you mean "workload"?'),
    ({"Dataset": "x"}, "Dataset", 'did you mean "dataset"?'),
    ({"zzz": 1}, "zzz", "known keys: accept, code_path, dataset, deadline, debugger, env_vars, model"),
    ({True: 1}, "True", "is not a key of a JobSpec"),
    ({"ray": {"adress": "http://x"}}, "ray.adress", 'did you mean "address"?'),
    ({"ray": {"resources": {"num_cpus": 1}}}, "ray.resources.num_cpus", "entrypoint_num_cpus"),
    ({"resources": {"nodes": 2}}, "resources.nodes", 'did you mean "nnodes"?'),
    ({"ray": ["http://x"]}, "ray", "is ['http://x']: give a mapping with address, resources"),
    ({"ray": {"resources": 1}}, "ray.resources", "entrypoint_num_cpus, entrypoint_resources"),
    ({"resources": 2}, "resources", "is 2: give a mapping with gpus_per_node, nnodes"),
    ({"resources": "nnodes=2"}, "resources", "is 'nnodes=2': give a mapping"),
    ({"resources": {"nnodes": "two"}}, "resources", "nnodes"),
    ({"resources": {"gpus_per_node": 1.5}}, "resources", "gpus_per_node"),
    ({"env_vars": ["A"]}, "env_vars", "env_vars"),
    ({"env_vars": "A"}, "env_vars", "env_vars"),
    ({"ray": {"resources": {"entrypoint_num_cpus": "all"}}}, "ray", "entrypoint_num_cpus"),
    ({"ray": {"resources": {"entrypoint_resources": 1}}}, "ray", "entrypoint_resources"),
    ({"submission_id": "Grpo"}, "submission_id", "'Grpo' is malformed"),
    ({"submission_id": "a/b"}, "submission_id", "'a/b' is malformed"),
    ({"submission_id": ".hidden"}, "submission_id", "begin with a letter or digit"),
    ({"submission_id": "a" * 64}, "submission_id", "at most 63"),
    ({"submission_id": ""}, "submission_id", "'' is malformed"),
    ({"submission_id": "a b"}, "submission_id", "'a b' is malformed"),
    ({"submission_id": "a\n"}, "submission_id", r"'a\n' is malformed"),
    ({"shared_root": "private"}, "shared_root", "'private' is not absolute"),
    ({"code_path": "verl 0.9"}, "code_path", "'verl 0.9' is neither a name nor an absolute path"),
    ({"code_path": "../verl"}, "code_path", "under /private/common/code/verl"),
    ({"code_path": "/home/ann/verl"}, "code_path", "/home/ann/verl is outside the shared root /private"),
    ({"code_path": "/private"}, "code_path", "/private is outside the shared root"),
    ({"code_path": "/private/"}, "code_path", "outside the shared root"),
    ({"code_path": "/privateer/verl"}, "code_path", "outside the shared root"),
    ({"model": "Qwen/Qwen2.5-0.5B"}, "model", "something under /private/common/models"),
    ({"model": "/root/.cache/model"}, "model", "copy it there, to /private/common/models"),
    ({"model": "/private/../etc"}, "model", "outside the shared root"),
    ({"model": ""}, "model", "'' is neither a name"),
    ({"dataset": "gsm8k/train.parquet"}, "dataset", "something under /private/datasets"),
    ({"dataset": "/data/gsm8k"}, "dataset", "copy it there, to /private/datasets"),
    ({"shared_root": "/shared", "dataset": "/private/datasets/x"}, "dataset", "outside the shared root /shared"),
    ({"reward_fn_path": "/home/ann/r.py"}, "reward_fn_path", "copy it to /private/user/code"),
    ({"reward_fn_path": "rewards"}, "reward_fn_path", "'rewards' is not a Python file"),
    ({"reward_fn_path": "../r.py"}, "reward_fn_path", "'../r.py' is not a Python file"),
    ({"reward_fn_path": "r.py:"}, "reward_fn_path", f"'' {NOT_A_FUNCTION}"),
    ({"reward_fn_path": "r.py:a-b"}, "reward_fn_path", f"'a-b' {NOT_A_FUNCTION}"),
    ({"reward_fn_path": "r.py:a:b"}, "reward_fn_path", f"'a:b' {NOT_A_FUNCTION}"),
    ({"workload": "sft", "reward_fn_path": "r.py"}, "reward_fn_path", "sft has no rewards"),
    ({"env_vars": {"RAY_AUTH_TOKEN": "x"}}, "env_vars.RAY_AUTH_TOKEN", "Ray's own variables belong to the cluster"),
    ({"env_vars": {"RAY_DEBUG": 1}}, "env_vars.RAY_DEBUG", "or use ray_node_env"),
    ({"env_vars": {"1A": "x"}}, "env_vars.1A", "is not the name of an environment variable"),
    ({"env_vars": {"A-B": "x"}}, "env_vars.A-B", "use letters, digits and _"),
    ({"env_vars": {True: "x"}}, "env_vars.True", "is not the name of an environment variable"),
    ({"env_vars": {None: "x"}}, "env_vars.None", "is not the name of an environment variable"),
    ({"env_vars": {"WANDB_API_KEY": "x"}}, "env_vars.WANDB_API_KEY", "say secrets: [WANDB_API_KEY], and export it"),
    ({"env_vars": {"HF_TOKEN": "x"}}, "env_vars.HF_TOKEN", "readable in the archive and in Ray's dashboard"),
    ({"env_vars": {"A": None}}, "env_vars.A", "is None: give a string or a number"),
    ({"env_vars": {"A": ["x"]}}, "env_vars.A", "is ['x']"),
    ({"env_vars": {"A": {"b": 1}}}, "env_vars.A", "is {'b': 1}"),
    ({"env_vars": {"HF_HOME": "/x"}}, "env_vars.HF_HOME", "it is hf/ under the shared root"),
    ({"env_vars": {"VERL_FILE_LOGGER_PATH": "/x"}}, "env_vars.VERL_FILE_LOGGER_PATH", "belong into the archive"),
    ({"resources": {"nnodes": 0}}, "resources.nnodes", "is 0: give at least 1"),
    ({"resources": {"nnodes": True}}, "resources.nnodes", "is True: give at least 1"),
    ({"resources": {"gpus_per_node": -1}}, "resources.gpus_per_node", "is -1"),
    ({"ray": {"address": "head:8265"}}, "ray.address", "'head:8265' is not an address"),
    ({"ray": {"address": "file:///etc/passwd"}}, "ray.address", "give one such as http://127.0.0.1:8265"),
    ({"ray": {"resources": {"entrypoint_num_cpus": -1}}}, "ray.resources.entrypoint_num_cpus", "is -1"),
    ({"ray": {"resources": {"entrypoint_num_cpus": math.nan}}}, "ray.resources.entrypoint_num_cpus", "is nan"),
    (
        {"ray": {"resources": {"entrypoint_resources": {"worker_node": 1, "CPU": 1}}}},
        "ray.resources.entrypoint_resources",
        "must not hold CPU: use ray.resources.entrypoint_num_cpus",
    ),
    (
        {"ray": {"resources": {"entrypoint_resources": {"worker_node": 1, "GPU": 1}}}},
        "ray.resources.entrypoint_resources",
        "must not hold GPU",
    ),
    (
        {"ray": {"resources": {"entrypoint_resources": {}}}},
        "ray.resources.entrypoint_resources",
        "nothing in it keeps the driver off the head: keep {worker_node: 1}",
    ),
    ({"trainer_overrides": "trainer.save_freq=1"}, "trainer_overrides", "is a str, 'trainer.save_freq=1'"),
    ({"trainer_overrides": 7}, "trainer_overrides", "give a list of key=value, or a mapping"),
    ({"trainer_overrides": ["trainer.save_freq"]}, "trainer_overrides", "'trainer.save_freq' is not key=value"),
    ({"trainer_overrides": ["=1"]}, "trainer_overrides", "'=1' is not key=value"),
    ({"trainer_overrides": ["~"]}, "trainer_overrides", "'~' is not key=value"),
    ({"trainer_overrides": ["+=1"]}, "trainer_overrides", "'+=1' is not key=value"),
    ({"trainer_overrides": [{"a": 1}]}, "trainer_overrides", "{'a': 1} is not key=value"),
    ({"trainer_overrides": [None]}, "trainer_overrides", "None is not key=value"),
    ({"trainer_overrides": {"": 2}}, "trainer_overrides", "'=2' is not key=value"),
    ({"trainer_overrides": {"trainer": {"nnodes": 2}}}, "trainer_overrides: trainer.nnodes", "resources.nnodes"),
    (
        {"trainer_overrides": ["++trainer.n_gpus_per_node=1"]},
        "trainer_overrides: trainer.n_gpus_per_node",
        "is decided by the JobSpec: say resources.gpus_per_node",
    ),
    (
        {"trainer_overrides": ["trainer.default_local_dir = /tmp"]},
        "trainer_overrides: trainer.default_local_dir",
        "checkpoints belong into the job's archive",
    ),
    (
        {"trainer_overrides": {"algorithm.adv_estimator": "gae"}},
        "trainer_overrides: algorithm.adv_estimator",
        "say workload: ppo or workload: grpo",
    ),
    (
        {"trainer_overrides": {"custom_reward_function": {"path": "/x.py"}}},
        "trainer_overrides: custom_reward_function.path",
        "verl 0.9 silently ignores this one",
    ),
    (
        {"trainer_overrides": {"ray_kwargs.ray_init.num_cpus": 8}},
        "trainer_overrides: ray_kwargs.ray_init.num_cpus",
        "the job joins the cluster that there is",
    ),
    (
        {"trainer_overrides": {"reward": {"+custom_reward_function.name": "f"}}},
        "trainer_overrides: reward.custom_reward_function.name",
        "say reward_fn_path: FILE:FUNCTION",
    ),
    ({"env_vars": {"ARGUS_VERL_JOB": "x"}}, "env_vars.ARGUS_VERL_JOB", "it marks the job's processes"),
    ({"env_vars": {"ARGUS_VERL_ARCHIVE": "/x"}}, "env_vars.ARGUS_VERL_ARCHIVE", "it names the job's archive"),
    ({"secrets": ["HF_TOKEN=hf_abc"]}, "secrets: HF_TOKEN=hf_abc", "give names only, no values"),
    ({"secrets": "A-B"}, "secrets: A-B", "is not the name of an environment variable"),
    ({"secrets": {"HF_TOKEN": "x"}}, "secrets", "is of type dict and we were unable to convert to list"),
    ({"secrets": ["RAY_AUTH_TOKEN"]}, "secrets: RAY_AUTH_TOKEN", "is set by the cluster or by the job itself"),
    ({"secrets": ["HF_HOME"]}, "secrets: HF_HOME", "leave it out"),
    ({"secrets": ["MINE"], "env_vars": {"MINE": 1}}, "secrets: MINE", "is also in env_vars: take it out of env_vars"),
    ({"retries": -1}, "retries", "is -1: give how often to try again, 0 to 100"),
    ({"retries": 101}, "retries", "is 101"),
    ({"retries": True}, "retries", "is True"),
    ({"retries": "often"}, "retries", "cannot be converted to an int"),
    ({"deadline": "soon"}, "deadline", "'soon' is not a duration: give seconds, or such as 90m, 1h30m, 2d"),
    ({"deadline": ""}, "deadline", "'' is not a duration"),
    ({"deadline": "1h 30m"}, "deadline", "'1h 30m' is not a duration"),
    ({"wait_for_resources": "5w"}, "wait_for_resources", "'5w' is not a duration"),
    ({"wait_for_resources": "30m1h"}, "wait_for_resources", "'30m1h' is not a duration"),
    ({"wait_for_resources": "inf"}, "wait_for_resources", "'inf' is not a duration"),
    ({"stall_timeout": "-5"}, "stall_timeout", "'-5' is not a duration"),
    ({"stall_timeout": "m"}, "stall_timeout", "'m' is not a duration"),
    ({"stall_timeout": False}, "stall_timeout", "'False' is not a duration"),
    ({"on_stall": "kill"}, "on_stall", "value of on_stall must be one of: report, stop, got: kill"),
    ({"resume_from": "jobs/grpo-1"}, "resume_from", "'jobs/grpo-1' is not a submission id"),
    ({"resume_from": "grpo-1~2"}, "resume_from", "from whose last checkpoint this one goes on"),
    (
        {"resume_from": "grpo-1", "trainer_overrides": {"trainer.resume_mode": "auto"}},
        "trainer_overrides: trainer.resume_mode",
        "contradicts resume_from: keep one of them",
    ),
    (
        {"resume_from": "grpo-1", "trainer_overrides": ["++trainer.resume_from_path=/x"]},
        "trainer_overrides: trainer.resume_from_path",
        "contradicts resume_from",
    ),
    ({"debugger": "pdb"}, "debugger", "value of debugger must be one of: post_mortem, legacy, got: pdb"),
    ({"debugger": True}, "debugger", "post_mortem, legacy, got: True"),
    ({"tags": {"team": ["a"]}}, "tags.team", "is ['a']: give a text or a number"),
    ({"tags": {"team": {"a": 1}}}, "tags.team", "is {'a': 1}"),
    ({"tags": ["a"]}, "tags", "is of type list and we were unable to convert to dict"),
    ({"tags": "mine"}, "tags", "is of type str and we were unable to convert to dict"),
    ({"accept": ["everything"]}, "accept", "one or more of: requirements, space. Got no match for: everything"),
    ({"accept": {"space": True}}, "accept", "is of type dict and we were unable to convert to list"),
    ({"acept": ["space"]}, "acept", 'did you mean "accept"?'),
    ({"dead_line": "1h"}, "dead_line", 'did you mean "deadline"?'),
]


def keys(given: Mapping[Any, Any], options: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """The keys of a JobSpec's options that are given, those of mappings with dots."""
    for key, value in given.items():
        if key in options:
            yield f"{where}{key}"
            if isinstance(value, Mapping):
                yield from keys(value, options[key].get("options", {}), f"{where}{key}.")


def all_keys(options: Mapping[str, Any], where: str = "") -> Iterator[str]:
    for key, option in options.items():
        yield f"{where}{key}"
        yield from all_keys(option.get("options", {}), f"{where}{key}.")


def test_each_malformed_jobspec_is_told_something_of_its_own() -> None:
    said: dict[str, dict[Any, Any]] = {}
    for changes, where, piece in BAD:
        own = [
            f"{finding.where}: {finding.what}: {finding.todo}"
            for finding in findings_of(changes)
            if finding.where == where and piece in f"{finding.what}: {finding.todo}"
        ]
        assert len(own) == 1, (changes, own)
        assert own[0] not in said, (changes, said.get(own[0]))
        said[own[0]] = changes
    assert len(said) >= 60


@pytest.mark.parametrize("amount", [0, -1, "1", None])
def test_nothing_of_a_resource_keeps_no_driver_off_the_head(amount: Any) -> None:
    (finding,) = findings_of({"ray": {"resources": {"entrypoint_resources": {"worker_node": amount}}}})
    assert finding.what == "nothing in it keeps the driver off the head"


def test_every_key_of_a_jobspec_can_be_wrong() -> None:
    assert {key for changes, _where, _piece in BAD for key in keys(changes, OPTIONS)} == set(all_keys(OPTIONS))


@pytest.mark.parametrize(("changes", "where", "piece"), BAD, ids=[str(case[0])[:60] for case in BAD])
def test_a_malformed_jobspec(changes: dict[Any, Any], where: str, piece: str) -> None:
    findings = findings_of(changes)
    said = [f"{finding.what}: {finding.todo}" for finding in findings if finding.where == where]
    assert any(piece in text for text in said), findings
    assert {finding.severity for finding in findings} == {"error"}


@pytest.mark.parametrize("given", [None, [], "grpo.yaml", 3])
def test_something_that_is_no_mapping(given: object) -> None:
    findings, spec = parse_jobspec(given)
    assert [(finding.where, finding.what) for finding in findings] == [("jobspec", f"is a {type(given).__name__}")]
    assert spec == {}


def test_everything_is_said_at_once() -> None:
    changes = {"submission_id": "A", "code_path": "/x", "env_vars": {"RAY_X": 1}, "resources": {"nnodes": 0}}
    findings = findings_of({**changes, "unknown": 1, "model": "a b"})
    assert [finding.where for finding in findings] == [
        "unknown",
        "submission_id",
        "code_path",
        "model",
        "env_vars.RAY_X",
        "resources.nnodes",
    ]


def test_what_a_jobspec_does_not_say_comes_from_the_clusters_defaults() -> None:
    defaults = {"shared_root": "/mnt", "env_vars": {"A": 1, "B": 2}, "ray": {"address": "http://127.0.0.1:1"}}
    assert with_defaults({"workload": "sft", "env_vars": {"B": 3}, "shared_root": None}, defaults) == {
        "workload": "sft",
        "shared_root": "/mnt",
        "env_vars": {"A": 1, "B": 3},
        "ray": {"address": "http://127.0.0.1:1"},
    }
    # What is no JobSpec at all stays what it is, for the check to say so.
    assert with_defaults(["x"], defaults) == ["x"]


@pytest.mark.parametrize(
    ("path", "answer"),
    [("/private/x", True), ("/private", False), ("/private/x/../../etc", False), ("/privateer/x", False)],
)
def test_under_root(path: str, answer: bool) -> None:
    assert under_root(path, "/private") is answer


def test_a_new_submission_id_is_a_good_one_and_never_the_same() -> None:
    names = {new_submission_id("grpo") for _ in range(20)}
    assert len(names) == 20
    for name in names:
        assert re.fullmatch(r"grpo-\d{8}-\d{6}-[0-9a-f]{4}", name)
        assert checked(submission_id=name)


# --- Durations and secrets --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("duration", "value"),
    [
        (None, None),
        ("0", None),
        ("0m", None),
        ("90", 90.0),
        ("90s", 90.0),
        ("0.5", 0.5),
        ("30m", 1800.0),
        ("1.5h", 5400.0),
        ("1h30m", 5400.0),
        ("2d", 172_800.0),
        ("1d2h3m4s", 93_784.0),
    ],
)
def test_durations(duration: str | None, value: float | None) -> None:
    assert seconds(duration) == value


@pytest.mark.parametrize("duration", ["", " ", "h", "1 h", "-1", "1e3", "nan", "1h1h", "1m1h", "1,5h", "1H", "90\n"])
def test_what_is_no_duration(duration: str) -> None:
    with pytest.raises(ValueError, match="is not a duration"):
        seconds(duration)


def test_a_duration_may_be_a_number() -> None:
    spec = checked(deadline=3600, wait_for_resources=0.5, stall_timeout=0)
    assert [spec.deadline, spec.wait_for_resources, spec.stall_timeout] == [3600.0, 0.5, None]


def test_good_policies() -> None:
    asked = {
        "secrets": ["HF_TOKEN", "_mine"],
        "retries": 100,
        "on_stall": "stop",
        "resume_from": "grpo-1",
        "debugger": "legacy",
        "tags": {"team": "a", "try": 2, "none": None},
        "accept": ["space", "requirements"],
        # What is not resumed from may say itself how.
        "trainer_overrides": {"trainer.save_freq": 5},
    }
    assert checked(**asked).items() >= asked.items()
    # One may be given without a list.
    assert checked(secrets="A,B", accept="space")["secrets"] == ["A", "B"]
    assert checked(trainer_overrides={"trainer.resume_mode": "disable"})["resume_from"] is None


@pytest.mark.parametrize("value", [None, ""])
def test_a_secret_without_a_value(value: str | None) -> None:
    given = {} if value is None else {"HF_TOKEN": value}
    assert secret_value_findings(["HF_TOKEN"], given) == [
        Finding(
            "secrets: HF_TOKEN",
            "has no value",
            "export HF_TOKEN on the controller, or put it into job_secrets, from a vault",
        )
    ]


@pytest.mark.parametrize("value", ["abc", 12345, ["hf_secret"]])
def test_a_value_that_could_not_be_kept_out_of_logs(value: Any) -> None:
    (finding,) = secret_value_findings(["A"], {"A": value})
    assert finding.what == "is not a text of at least 4 characters, and could not be kept out of logs"
    assert str(value) not in str(finding)


def test_secrets_with_values() -> None:
    assert secret_value_findings(["A", "B"], {"A": "1234", "B": "größe", "OTHER": 1}) == []
    assert secret_value_findings([], {}) == []


# --- Hydra ------------------------------------------------------------------------------------------------------------

VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -3,
    10**20,
    0.5,
    1e-3,
    1e-05,
    1e22,
    math.inf,
    -math.inf,
    "",
    " ",
    "plain",
    "two words",
    "two  spaces",
    " a",
    "a ",
    "a,b",
    "a=b",
    "a:b",
    "it's",
    'say "x"',
    "'",
    "''",
    "\\",
    "\\'",
    "\\\\'",
    "a\\",
    "a\\\\",
    "a\\\n",
    "a\\b",
    "tab\there",
    "two\nlines",
    "(1+2)",
    "[1,2]",
    "{a:1}",
    "#no comment",
    "100%",
    "a@b",
    "/private/common/models/tiny-qwen2",
    "größe",
    "null",
    "NULL",
    "None",
    "true",
    "False",
    "1",
    "-1",
    "+1",
    "1.5",
    "1e5",
    "1E-5",
    "1_000",
    "1e1_0",
    ".5",
    "5.",
    "inf",
    "-inf",
    "nan",
    "-nan",
    "+NaN",
    "1 2",
    "true false",
    "glob(*)",
    [],
    {},
    [1, "1", None, True, "a,b"],
    [[1, [2.5]], []],
    [{"name": "a b", "lr": 0.1, "nested": {"on": True, "empty": []}}],
    [{"optim.lr": 1}],
]


def parse(override: str) -> Any:
    parser = pytest.importorskip("hydra.core.override_parser.overrides_parser")
    return parser.OverridesParser.create().parse_override(override)


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_hydra_reads_back_what_was_written(value: Any) -> None:
    back = parse(f"key={hydra_value(value)}").value()
    assert back == value
    assert type(back) is type(value)


def test_hydra_reads_back_not_a_number() -> None:
    assert math.isnan(parse(f"key={hydra_value(math.nan)}").value())


def test_hydra_reads_back_any_text() -> None:
    pytest.importorskip("hydra")
    chance = random.Random(17)  # noqa: S311
    for _ in range(400):
        text = "".join(chance.choice("ab1.e_-+ '\"\\,=:{}[]()$#\n\t~@%|/nfut") for _ in range(chance.randint(0, 8)))
        for value in (text, [text, "x"], [{"k": text}]):
            assert parse(f"key={hydra_value(value)}").value() == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("/private/models/a-b_1.0", "/private/models/a-b_1.0"),
        ("1", "'1'"),
        ("a,b", "'a,b'"),
        ("it's", r"'it\'s'"),
        ("a\\", r"'a\\'"),
        (True, "True"),
        (None, "null"),
        (1.0e-3, "0.001"),
        (("a", 1), "[a,1]"),
        ({"a": {"b": [1, "2"]}}, "{a:{b:[1,'2']}}"),
    ],
)
def test_hydra_value(value: Any, text: str) -> None:
    assert hydra_value(value) == text


def test_overrides_from_a_mapping() -> None:
    given = {
        "trainer.save_freq": 5,
        "data": {"train_batch_size": 8, "filter": {"on": False}},
        "actor_rollout_ref.actor": {"optim.lr": 1.0e-3, "stop": ["a", "b,c"]},
        "nothing": {},
        "note": "a, b",
    }
    assert override_list(given) == [
        "trainer.save_freq=5",
        "data.train_batch_size=8",
        "data.filter.on=False",
        "actor_rollout_ref.actor.optim.lr=0.001",
        "actor_rollout_ref.actor.stop=[a,'b,c']",
        "nothing={}",
        "note='a, b'",
    ]


def test_overrides_from_a_list_stay_as_they_are() -> None:
    given = ["trainer.save_freq=5", "+new.key=x", "++forced=1", "~gone", "~gone.too=1", "note='a, b'"]
    assert override_list(given) == given


@pytest.mark.parametrize(
    ("given", "override"),
    [
        ({"+model": {"a": 1}}, "+model.a=1"),
        ({"model": {"+a": 1}}, "+model.a=1"),
        ({"model": {"b": {"++a": 1}}}, "++model.b.a=1"),
        ({"++model": {"+a": 1}}, "+model.a=1"),
        ({"model": {"~a": None}}, "~model.a"),
        ({"~model.a": None}, "~model.a"),
        ({"~model.a": 1}, "~model.a=1"),
        ({"model.a": None}, "model.a=null"),
    ],
)
def test_the_prefix_of_an_override_comes_first(given: dict[str, Any], override: str) -> None:
    assert override_list(given) == [override]
    assert parse(override).key_or_group == override_key(override)


@pytest.mark.parametrize(
    ("override", "key"),
    [("a.b=1", "a.b"), ("+a=1", "a"), ("++a.b=c=d", "a.b"), ("~a", "a"), (" a =1", "a"), ("=1", ""), ("~", "")],
)
def test_the_key_of_an_override(override: str, key: str) -> None:
    assert override_key(override) == key


def test_the_users_overrides_stand_in_place_of_ours() -> None:
    ours = ["a=1", "++b.c=2", "d=3", "e=4"]
    assert merge(ours, ["b.c=20", "~d", "f=6", "+e=5"]) == ["a=1", "b.c=20", "~d", "f=6", "+e=5"]
    assert merge(ours, []) == ours


# --- The cluster ------------------------------------------------------------------------------------------------------


def node(name: str, state: str = "ALIVE", accelerator: str | None = "cpu", **resources: float) -> dict[str, Any]:
    labels = {"argus.verl/accelerator": accelerator} if accelerator else None
    return {"node_name": name, "state": state, "resources_total": resources, "labels": labels}


def test_the_cluster_is_the_least_that_every_worker_alive_has() -> None:
    nodes = [
        node("head"),
        node("worker-0", CPU=48.0, GPU=4.0, worker_node=100.0),
        node("worker-1", CPU=24.0, GPU=8.0, worker_node=100.0),
        node("worker-2", state="DEAD", CPU=1.0, GPU=1.0, worker_node=100.0),
    ]
    assert Cluster.of(nodes) == Cluster("cpu", workers=2, gpus_per_node=4, cpus_per_node=24)


def test_a_worker_that_came_back_is_one_worker() -> None:
    worker = node("worker-0", CPU=48.0, GPU=4.0, worker_node=100.0)
    assert Cluster.of([{**worker, "state": "DEAD"}, worker]).workers == 1
    # For a moment Ray holds the one before for alive as well.
    assert Cluster.of([worker, worker]).workers == 1


def test_a_cluster_without_labels_is_of_real_gpus() -> None:
    worker = node("worker-0", accelerator=None, CPU=8.0, GPU=1.0, worker_node=100.0)
    assert Cluster.of([worker]).accelerator == "cuda"


def test_a_mixed_cluster_and_an_empty_one_fit_no_job() -> None:
    mixed = Cluster.of([node(kind, accelerator=kind, CPU=9.0, GPU=1.0, worker_node=1.0) for kind in ("cpu", "cuda")])
    assert [finding.what for finding in size_findings(checked(), mixed)] == ["workers have different accelerators"]
    empty = Cluster.of([node("head")])
    assert size_findings(checked(), empty) == [Finding("cluster", "no worker is alive", "run cluster_up.yml")]


@pytest.mark.parametrize("workload", ["sft", "grpo", "ppo"])
@pytest.mark.parametrize("cluster", [CPU, CUDA], ids=["cpu", "cuda"])
def test_the_whole_cluster_fits(workload: str, cluster: Cluster) -> None:
    assert size_findings(checked(workload=workload), cluster) == []


def test_a_job_that_is_too_large() -> None:
    findings = size_findings(checked(resources={"nnodes": 3, "gpus_per_node": 5}), CPU)
    assert [(finding.where, finding.what) for finding in findings] == [
        ("resources.nnodes", "asks for 3 workers, 2 are alive"),
        ("resources.gpus_per_node", "asks for 5 GPUs a worker, they have 4"),
    ]
    assert findings[0].todo == "ask for at most 2, or add workers to the inventory and run cluster_up.yml"


def test_an_sft_that_would_wait_for_cpus_for_ever() -> None:
    small = Cluster("cuda", workers=1, gpus_per_node=4, cpus_per_node=40)
    (finding,) = size_findings(checked(workload="sft"), small)
    assert finding.where == "resources.gpus_per_node"
    # The driver takes one of the 40 away first.
    assert finding.what == "sft on 4 GPUs asks for 40 CPUs a worker and 1 for the driver, they have 40"
    assert size_findings(checked(workload="sft", resources={"gpus_per_node": 3}), small) == []
    assert size_findings(checked(workload="grpo"), small) == []
    assert [finding.what for finding in size_findings(checked(workload="grpo"), Cluster("cuda", 1, 4, 12))] == [
        "grpo on 4 GPUs asks for 12 CPUs a worker and 1 for the driver, they have 12"
    ]
    free = Cluster("cuda", workers=2, gpus_per_node=4, cpus_per_node=40)
    assert size_findings(checked(workload="sft", resources={"nnodes": 1}), free) == []


def test_workers_without_gpus_fit_no_job() -> None:
    (finding,) = size_findings(checked(), Cluster("cpu", 1, 0, 4))
    assert finding.what == "asks for 0 GPUs a worker, they have 0"


# --- What it becomes --------------------------------------------------------------------------------------------------


def planned(cluster: Cluster = CPU, profile: Profile = NEWEST, **changes: Any) -> Job:
    return plan_job(checked(**changes), cluster, "verl-0.9.1", "job-1", profile)


def settings(job: Job) -> dict[str, str]:
    found = dict(override.lstrip("+").partition("=")[::2] for override in job.plan.overrides)
    assert len(found) == len(job.plan.overrides), "a key is said twice"
    return found


@pytest.mark.parametrize("workload", ["sft", "grpo", "ppo"])
@pytest.mark.parametrize("cluster", [CPU, CUDA], ids=["cpu", "cuda"])
def test_what_holds_of_every_job(workload: str, cluster: Cluster) -> None:
    job = planned(cluster, workload=workload)
    said = settings(job)
    assert said["trainer.nnodes"] == str(cluster.workers)
    assert said["trainer.n_gpus_per_node"] == str(cluster.gpus_per_node)
    assert said["trainer.default_local_dir"] == "/private/jobs/job-1/checkpoints"
    assert said["trainer.logger"] == "[console,file]"
    assert said["trainer.total_epochs"] == "1"
    assert said["trainer.save_freq"] == "10"
    assert said["trainer.project_name"] == workload
    assert said["trainer.experiment_name"] == "job-1"
    assert said["hydra.run.dir"] == "/private/jobs/job-1/config/hydra"
    assert said["data.train_files"] == "/private/datasets/gsm8k_tiny/train.parquet"
    assert said["data.val_files"] == "/private/datasets/gsm8k_tiny/val.parquet"
    assert not [key for key in said if key.startswith("custom_reward_function")]
    for override in job.plan.overrides:
        parse(override)


@pytest.mark.parametrize("workload", ["grpo", "ppo"])
@pytest.mark.parametrize("cluster", [CPU, CUDA], ids=["cpu", "cuda"])
def test_reinforcement_learning_is_kept_off_the_head(workload: str, cluster: Cluster) -> None:
    job = planned(cluster, workload=workload)
    assert job.plan.module == "verl.trainer.main_ppo"
    assert "++transfer_queue.backend.SimpleStorage.required_node_resource=worker_node" in job.plan.overrides
    said = settings(job)
    assert said["actor_rollout_ref.model.path"] == "/private/common/models/tiny-qwen2"
    assert said["trainer.max_actor_ckpt_to_keep"] == said["trainer.max_critic_ckpt_to_keep"] == "3"


def test_grpo_compares_answers_and_ppo_has_a_critic() -> None:
    grpo, ppo = settings(planned()), settings(planned(workload="ppo"))
    assert grpo["algorithm.adv_estimator"] == "grpo"
    assert int(grpo["actor_rollout_ref.rollout.n"]) > 1
    assert not [key for key in grpo if key.startswith("critic")]
    assert ppo["algorithm.adv_estimator"] == "gae"
    assert ppo["critic.model.path"] == "/private/common/models/tiny-qwen2"
    assert ppo["critic.strategy"] == "fsdp2"


@pytest.mark.parametrize("cluster", [CPU, CUDA], ids=["cpu", "cuda"])
def test_the_driver_of_sft_never_has_a_gpu(cluster: Cluster) -> None:
    job = planned(cluster, workload="sft")
    said = settings(job)
    assert job.plan.module == "verl.trainer.sft_trainer_ray"
    assert said["trainer.device"] == "cpu"
    assert said["model.path"] == "/private/common/models/tiny-qwen2"
    assert said["trainer.max_ckpt_to_keep"] == "3"
    assert not [key for key in said if key.startswith(("actor_rollout_ref", "algorithm", "reward", "transfer_queue"))]
    assert job.runtime_env["env_vars"]["RAY_ADDRESS"] == "auto"


def test_the_cpu_backend() -> None:
    said = settings(planned())
    assert said["trainer.device"] == "cpu"
    assert said["actor_rollout_ref.rollout.name"] == "hf_cpu"
    assert said["actor_rollout_ref.actor.strategy"] == "fsdp2"
    assert settings(planned(workload="sft"))["engine.strategy"] == "fsdp2"
    real = settings(planned(CUDA))
    assert real["actor_rollout_ref.rollout.name"] == "vllm"
    assert "trainer.device" not in real
    assert "actor_rollout_ref.actor.strategy" not in real
    assert "actor_rollout_ref.rollout.tensor_model_parallel_size" not in real
    single = settings(planned(CUDA, resources={"gpus_per_node": 1}))
    assert single["actor_rollout_ref.rollout.tensor_model_parallel_size"] == "1"
    assert "engine.strategy" not in settings(planned(CUDA, workload="sft"))


def test_the_reward_goes_where_verl_0_9_reads_it() -> None:
    said = settings(planned(reward_fn_path="digit_share.py"))
    assert said["reward.custom_reward_function.path"] == "/private/user/code/digit_share.py"
    assert said["reward.custom_reward_function.name"] == "compute_score"
    said = settings(planned(reward_fn_path="/private/user/code/r.py:score", workload="ppo"))
    assert said["reward.custom_reward_function.path"] == "/private/user/code/r.py"
    assert said["reward.custom_reward_function.name"] == "score"
    assert not [key for key in settings(planned()) if key.startswith("reward.custom")]


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.version)
def test_the_reward_goes_where_each_version_reads_it(profile: Profile) -> None:
    said = settings(planned(CUDA, profile, reward_fn_path="r.py:score"))
    key = "custom_reward_function" if profile.release < (0, 7, 1) else "reward.custom_reward_function"
    assert said[f"{key}.path"] == "/private/user/code/r.py"
    assert said[f"{key}.name"] == "score"
    assert len([name for name in said if "custom_reward_function" in name]) == 2


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.version)
def test_what_is_only_in_some_versions(profile: Profile) -> None:
    said = settings(planned(CUDA, profile))
    # 0.5 has no logger that writes a file.
    assert said["trainer.logger"] == ("[console]" if profile.release < (0, 6, 0) else "[console,file]")
    assert any(key.startswith("transfer_queue") for key in said) is (profile.release >= (0, 9, 0))


def test_the_device_of_sfts_driver() -> None:
    """Before 0.9, a bundle of {CPU: 10, cpu: 1} is asked for, which waits for ever."""
    old = Profile("0.8.0", (0, 8, 0))
    assert settings(planned(CUDA, old, workload="sft"))["trainer.device"] == "cuda"
    spec = checked(workload="sft", trainer_overrides={"trainer.device": "cpu"})
    (finding,) = version_findings(spec, old)
    assert (finding.where, finding.what) == (
        "trainer_overrides: trainer.device",
        "is cpu, and the driver of verl 0.8.0 works with cuda only",
    )
    assert version_findings(spec, NEWEST) == []


def test_sft_needs_a_trainer_that_knows_ray() -> None:
    for profile in PROFILES:
        findings = version_findings(checked(workload="sft"), profile)
        assert [finding.where for finding in findings] == (["workload"] if profile.release < (0, 7, 0) else [])
    (finding,) = version_findings(checked(workload="sft"), Profile("0.6.1", (0, 6, 1)))
    assert finding.what == "verl 0.6.1 has no sft on Ray (verl/trainer/sft_trainer_ray.py)"
    assert finding.todo == "use a snapshot of verl 0.7 or newer"


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.version)
def test_the_cpu_backend_is_for_one_version(profile: Profile) -> None:
    findings = accelerator_findings(profile, CPU)
    assert [finding.where for finding in findings] == (["code_path"] if profile.release < (0, 9, 0) else [])
    assert accelerator_findings(profile, CUDA) == []


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.version)
@pytest.mark.parametrize("workload", ["sft", "grpo", "ppo"])
def test_no_version_is_given_a_name_that_it_does_not_read(profile: Profile, workload: str) -> None:
    if profile.module(workload):
        job = planned(CUDA, profile, workload=workload, **({} if workload == "sft" else {"reward_fn_path": "r.py"}))
        assert [key for key in settings(job) if profile.misnamed(workload, key)] == []


def test_an_override_that_the_version_does_not_read() -> None:
    asked = ["+custom_reward_function.reward_kwargs.a=1", "trainer.logger=[console,trackio,nothing]", "data.seed=1"]
    findings = version_findings(checked(trainer_overrides=asked), NEWEST)
    assert [(finding.where, finding.what, finding.todo) for finding in findings] == [
        (
            "trainer_overrides: custom_reward_function.reward_kwargs.a",
            "is not read by verl 0.9.1",
            "say reward.custom_reward_function.reward_kwargs.a",
        ),
        (
            "trainer_overrides: trainer.logger",
            "verl 0.9.1 has no logger nothing",
            "use some of console, wandb, tracking, mlflow, swanlab, vemlp_wandb, tensorboard, clearml, file, trackio, "
            "rl_insight",
        ),
    ]
    assert version_findings(checked(trainer_overrides=asked), Profile("0.8.0", (0, 8, 0)))[0].todo.startswith(
        "use some"
    )


def test_a_path_with_anything_in_it_reaches_the_trainer() -> None:
    odd = "/private/it's, {a} model"
    job = planned(model=odd, dataset=odd, reward_fn_path=f"{odd}/r.py", workload="ppo")
    values = {parsed.key_or_group: parsed.value() for parsed in map(parse, job.plan.overrides)}
    assert values["actor_rollout_ref.model.path"] == values["critic.model.path"] == odd
    assert values["data.train_files"] == f"{odd}/train.parquet"
    assert values["reward.custom_reward_function.path"] == f"{odd}/r.py"
    values = {
        parsed.key_or_group: parsed.value() for parsed in map(parse, planned(model=odd, workload="sft").plan.overrides)
    }
    assert values["model.path"] == odd


def test_a_submission_id_of_digits_stays_text() -> None:
    spec = checked(submission_id="17")
    assert "trainer.experiment_name='17'" in plan_job(spec, CPU, "x", "17", NEWEST).plan.overrides


def test_the_size_and_the_users_overrides_win() -> None:
    job = planned(
        resources={"nnodes": 1, "gpus_per_node": 2},
        trainer_overrides={"trainer": {"save_freq": 2, "logger": ["console"]}, "+new": 1},
    )
    said = settings(job)
    assert said["trainer.nnodes"] == "1"
    assert said["trainer.n_gpus_per_node"] == "2"
    assert said["trainer.save_freq"] == "2"
    assert said["trainer.logger"] == "[console]"
    assert job.plan.overrides[-3:] == ["trainer.save_freq=2", "trainer.logger=[console]", "+new=1"]


def test_the_environment() -> None:
    job = planned(env_vars={"NCCL_DEBUG": "WARN", "OURS": 1})
    assert job.runtime_env == {
        "env_vars": {
            "HF_HUB_OFFLINE": "1",
            "PYTHONUNBUFFERED": "1",
            "HYDRA_FULL_ERROR": "1",
            "NCCL_DEBUG": "WARN",
            "OURS": "1",
            "PYTHONPATH": "/private/common/code/verl/verl-0.9.1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "HF_HOME": "/private/hf",
            "VERL_FILE_LOGGER_PATH": "/private/jobs/job-1/logs/metrics-1.jsonl",
            "ARGUS_VERL_JOB": "job-1",
            "ARGUS_VERL_ARCHIVE": "/private/jobs/job-1",
            "RAY_ADDRESS": "auto",
            "RAY_JOB_STOP_WAIT_TIME_S": "30",
        }
    }


def test_the_users_environment_wins_where_it_may() -> None:
    env = planned(env_vars={"HF_HUB_OFFLINE": 0, "PYTHONDONTWRITEBYTECODE": 0}).runtime_env["env_vars"]
    assert (env["HF_HUB_OFFLINE"], env["PYTHONDONTWRITEBYTECODE"]) == ("0", "1")


def test_workers_of_a_job_with_secrets_begin_with_a_hook() -> None:
    runtime_env = planned(secrets=["HF_TOKEN"]).runtime_env
    assert runtime_env["worker_process_setup_hook"] == "argus_launcher.redact.enter_worker"
    snapshot, hook = "/private/common/code/verl/verl-0.9.1", "/private/jobs/job-1/config/launcher"
    assert runtime_env["env_vars"]["PYTHONPATH"] == f"{snapshot}:{hook}"
    both = planned(secrets=["HF_TOKEN"], env_vars={"PYTHONPATH": "/private/user/code"}).runtime_env
    assert both["env_vars"]["PYTHONPATH"] == f"{snapshot}:/private/user/code:{hook}"
    # The names only: what Ray carries can be read by everybody.
    assert "HF_TOKEN" not in runtime_env["env_vars"]
    assert "worker_process_setup_hook" not in planned().runtime_env


@pytest.mark.parametrize(
    ("debugger", "switch"), [("post_mortem", {"RAY_DEBUG_POST_MORTEM": "1"}), ("legacy", {"RAY_DEBUG": "legacy"})]
)
def test_rays_debugger(debugger: str, switch: dict[str, str]) -> None:
    env = planned(debugger=debugger).runtime_env["env_vars"]
    assert {name: value for name, value in env.items() if name.startswith("RAY_DEBUG")} == switch
    assert not [name for name in planned().runtime_env["env_vars"] if name.startswith("RAY_DEBUG")]


def test_a_job_that_goes_on_from_another_one() -> None:
    spec = checked(resume_from="grpo-1")
    checkpoint = Checkpoint(30, Path("/private/jobs/grpo-1/checkpoints/global_step_30"), 8, "")
    job = plan_job(spec, CPU, "verl-0.9.1", "job-1", NEWEST, checkpoint)
    said = settings(job)
    assert said["trainer.resume_mode"] == "resume_path"
    assert said["trainer.resume_from_path"] == "/private/jobs/grpo-1/checkpoints/global_step_30"
    assert (job.plan.resumed_from, job.plan.resumed_from_step) == ("grpo-1", 30)
    assert not [key for key in settings(planned()) if key.startswith("trainer.resume")]


def test_the_policy() -> None:
    job = planned(
        CUDA,
        workload="sft",
        resources={"nnodes": 2, "gpus_per_node": 4},
        secrets=["HF_TOKEN"],
        retries=3,
        deadline="2d",
        wait_for_resources="2h",
        stall_timeout="0",
        on_stall="stop",
        tags={"team": "a"},
    )
    assert job.policy == {
        "workload": "sft",
        "nnodes": 2,
        "gpus_per_node": 4,
        "cpus_per_node": 40,
        "secrets": ["HF_TOKEN"],
        "retries": 3,
        "on_stall": "stop",
        "deadline": 172_800.0,
        "wait_for_resources": 7200.0,
        "stall_timeout": None,
        "resumed_from": None,
        "resumed_from_step": None,
        "transfer_queue": False,
    }
    assert job.tags == {"team": "a"}


def test_the_snapshot_comes_first_on_pythonpath() -> None:
    spec = checked(code_path="/private/common/code/verl/mine", env_vars={"PYTHONPATH": "/private/user/code"})
    job = plan_job(spec, CPU, "mine", "job-1", NEWEST)
    assert job.runtime_env["env_vars"]["PYTHONPATH"] == "/private/common/code/verl/mine:/private/user/code"
    assert job.plan.code_path == "/private/common/code/verl/mine"


@pytest.mark.parametrize("name", sorted(FORWARDED_BY_VERL))
def test_what_verl_forwards_is_not_in_the_runtime_env(name: str) -> None:
    """Ray refuses two values for one key: "Failed to merge the Job's runtime env"."""
    spec = checked(env_vars={name: "1"})
    job = plan_job(spec, CPU, "x", "job-1", NEWEST)
    assert name not in job.runtime_env["env_vars"]
    assert job.plan.driver_env == {name: "1"}
    assert job.plan.to_json()["driver_env"] == {name: "1"}


def test_what_launcher_and_keeper_read() -> None:
    job = planned(ray={"address": "http://127.0.0.1:9000"})
    assert job.plan.to_json() == {
        "code_path": "/private/common/code/verl/verl-0.9.1",
        "code_id": "verl-0.9.1",
        "module": "verl.trainer.main_ppo",
        "overrides": job.plan.overrides,
        "driver_env": {},
        "address": "http://127.0.0.1:9000",
        "entrypoint": job.plan.entrypoint,
        "entrypoint_resources": {"worker_node": 1},
        "entrypoint_num_cpus": 1,
        "workload": "grpo",
        "nnodes": 2,
        "gpus_per_node": 4,
        "cpus_per_node": 12,
        "secrets": [],
        "retries": 0,
        "on_stall": "report",
        "deadline": None,
        "wait_for_resources": None,
        "stall_timeout": 1800.0,
        "resumed_from": None,
        "resumed_from_step": None,
        "transfer_queue": True,
    }
    # It is read again from a file.
    assert json.loads(json.dumps(job.plan.to_json())) == job.plan.to_json()


def test_the_driver_is_forced_onto_a_worker() -> None:
    job = planned()
    assert (job.plan.entrypoint_resources, job.plan.entrypoint_num_cpus) == ({"worker_node": 1}, 1)
    asked = {"entrypoint_resources": {"train": 2}, "entrypoint_num_cpus": 0.5}
    job = planned(ray={"resources": asked})
    assert (job.plan.entrypoint_resources, job.plan.entrypoint_num_cpus) == ({"train": 2}, 0.5)


def test_the_submit_command_can_be_pasted() -> None:
    line = planned(ray={"address": "http://127.0.0.1:9000"}).submit_command()
    assert line.endswith("\n")
    assert line.count("\n") == 1
    assert shlex.split(line) == [
        "ray",
        "job",
        "submit",
        "--no-wait",
        "--address",
        "http://127.0.0.1:9000",
        "--submission-id",
        "job-1",
        "--entrypoint-num-cpus",
        "1",
        "--entrypoint-resources",
        '{"worker_node": 1}',
        "--runtime-env",
        "/private/jobs/job-1/config/runtime_env.json",
        "--",
        "python3",
        "/private/jobs/job-1/config/launcher",
        "run",
        "/private/jobs/job-1",
        # The first attempt.
        "1",
    ]


def test_a_shared_root_with_a_space_in_its_name() -> None:
    """Ray gives the entrypoint to a shell."""
    job = planned(shared_root="/my root")
    assert shlex.split(job.plan.entrypoint) == [
        "python3",
        "/my root/jobs/job-1/config/launcher",
        "run",
        "/my root/jobs/job-1",
    ]
    assert shlex.split(job.submit_command())[-5:] == [*shlex.split(job.plan.entrypoint), "1"]
