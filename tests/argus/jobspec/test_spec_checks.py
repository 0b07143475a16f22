from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from jobs import CPU, CUDA, MINIMAL, MISSING, NEWEST, PROFILES, findings_of, jobspec

from argus.common.findings import ERROR, Finding
from argus.jobspec.owned import OWNED_OVERRIDES
from argus.jobspec.parse import parse_jobspec
from argus.jobspec.spec import KEYS
from argus.jobspec.spec_checks import accelerator_findings, version_findings
from argus.jobspec.verl_releases import Profile

NOT_A_FUNCTION = "is not a function name"
MALFORMED: list[tuple[dict[Any, Any], str, str]] = [
    # The changes, the key of the finding, and a part of its text.
    ({"workload": MISSING}, "workload", "is required"),
    ({"code_path": MISSING}, "code_path", "is required"),
    ({"model": MISSING}, "model", "is required"),
    ({"dataset": None}, "dataset", "is required"),
    ({"workload": "dpo"}, "workload", "is 'dpo', and should be 'ppo', 'grpo' or 'sft'"),
    ({"workload": "GRPO"}, "workload", "should be 'ppo'"),
    ({"workflow": "grpo"}, "workflow", 'did you mean "workload"?'),
    ({"Dataset": "x"}, "Dataset", 'did you mean "dataset"?'),
    ({"zzz": 1}, "zzz", "known keys: accept, check_reward, code_path, dataset, deadline, debugger, depends_on"),
    ({True: 1}, "True", "is not a key of a JobSpec"),
    ({"ray": {"adress": "http://x"}}, "ray.adress", 'did you mean "address"?'),
    ({"ray": {"resources": {"num_cpus": 1}}}, "ray.resources.num_cpus", "entrypoint_num_cpus"),
    ({"resources": {"nodes": 2}}, "resources.nodes", 'did you mean "nnodes"?'),
    ({"ray": ["http://x"]}, "ray", "is ['http://x']: give a mapping with address, resources"),
    ({"ray": {"resources": 1}}, "ray.resources", "entrypoint_num_cpus, entrypoint_resources"),
    ({"resources": 2}, "resources", "is 2: give a mapping with gpus_per_node, nnodes"),
    ({"resources": "nnodes=2"}, "resources", "is 'nnodes=2': give a mapping"),
    ({"resources": {"nnodes": "two"}}, "resources.nnodes", "is 'two'"),
    ({"resources": {"gpus_per_node": 1.5}}, "resources.gpus_per_node", "is 1.5"),
    ({"env_vars": ["A"]}, "env_vars", "a valid mapping"),
    ({"env_vars": "A"}, "env_vars", "NAME=VALUE"),
    ({"ray": {"resources": {"entrypoint_num_cpus": "all"}}}, "ray.resources.entrypoint_num_cpus", "is 'all'"),
    ({"ray": {"resources": {"entrypoint_resources": 1}}}, "ray.resources.entrypoint_resources", "is 1,"),
    ({"submission_id": "Grpo"}, "submission_id", "'Grpo' is malformed"),
    ({"submission_id": "a/b"}, "submission_id", "'a/b' is malformed"),
    ({"submission_id": ".hidden"}, "submission_id", "begin with a letter or a digit"),
    ({"submission_id": "a" * 64}, "submission_id", "use at most 63 lower-case letters"),
    (
        {"resources": {"entrypoint_num_cpus": 1}},
        "resources.entrypoint_num_cpus",
        "as ray.resources.entrypoint_num_cpus",
    ),
    ({"entrypoint_resources": {}}, "entrypoint_resources", "write it as ray.resources.entrypoint_resources"),
    ({"submission_id": "a b"}, "submission_id", "'a b' is malformed"),
    ({"submission_id": "a\n"}, "submission_id", r"'a\n' is malformed"),
    ({"shared_root": "private"}, "shared_root", "'private' is not absolute"),
    ({"code_path": "verl 0.9"}, "code_path", "'verl 0.9' is neither a name nor an absolute path"),
    ({"code_path": "../verl"}, "code_path", "in /private/common/code/verl, or an absolute path under /private"),
    ({"code_path": "/home/ann/verl"}, "code_path", "/home/ann/verl is outside the shared root /private"),
    ({"code_path": "/private"}, "code_path", "/private is outside the shared root"),
    ({"code_path": "/private/"}, "code_path", "outside the shared root"),
    ({"code_path": "/privateer/verl"}, "code_path", "outside the shared root"),
    ({"model": "Qwen/Qwen2.5-0.5B"}, "model", "give the name of a directory in /private/common/models"),
    ({"model": "/root/.cache/model"}, "model", "copy it to common/models there"),
    ({"model": "/private/../etc"}, "model", "outside the shared root"),
    ({"model": ""}, "model", "'' is neither a name"),
    ({"dataset": "gsm8k/train.parquet"}, "dataset", "give the name of a directory in /private/datasets"),
    ({"dataset": "/data/gsm8k"}, "dataset", "copy it to datasets there"),
    ({"shared_root": "/shared", "dataset": "/private/datasets/x"}, "dataset", "outside the shared root /shared"),
    ({"reward_fn_path": "/home/ann/r.py"}, "reward_fn_path", "copy it to user/code there"),
    ({"reward_fn_path": "rewards"}, "reward_fn_path", "'rewards' is neither a Python file nor a function of a module"),
    ({"reward_fn_path": "../r.py"}, "reward_fn_path", "'../r.py' is neither a Python file nor a function of a module"),
    ({"reward_fn_path": "r.py:"}, "reward_fn_path", f"'' {NOT_A_FUNCTION}"),
    ({"reward_fn_path": "r.py:a-b"}, "reward_fn_path", f"'a-b' {NOT_A_FUNCTION}"),
    ({"reward_fn_path": "r.py:a:b"}, "reward_fn_path", f"'a:b' {NOT_A_FUNCTION}"),
    ({"reward_fn_path": "a.class:f"}, "reward_fn_path", "'a.class:f' is neither"),
    ({"ray": {"runtime_env": ["A"]}}, "ray.runtime_env", "a valid mapping"),
    (
        {"ray": {"runtime_env": {"working_dir": "."}}},
        "ray.runtime_env.working_dir",
        "before the snapshot on PYTHONPATH",
    ),
    ({"ray": {"runtime_env": {"py_modules": ["/x"]}}}, "ray.runtime_env.py_modules", "stage it to user/code"),
    ({"ray": {"runtime_env": {"excludes": []}}}, "ray.runtime_env.excludes", "it belongs to working_dir"),
    ({"ray": {"runtime_env": {"pip": ["x"]}}}, "ray.runtime_env.pip", "jobs download nothing"),
    ({"ray": {"runtime_env": {"uv": ["x"]}}}, "ray.runtime_env.uv", "add the packages to the image"),
    ({"ray": {"runtime_env": {"conda": "x"}}}, "ray.runtime_env.conda", "it installs packages"),
    ({"ray": {"runtime_env": {"container": {}}}}, "ray.runtime_env.container", "the image of its nodes"),
    ({"ray": {"runtime_env": {"image_uri": "x"}}}, "ray.runtime_env.image_uri", "set the image of the cluster"),
    ({"ray": {"runtime_env": {"py_executable": "x"}}}, "ray.runtime_env.py_executable", "the Python of its nodes"),
    ({"ray": {"runtime_env": {"java_jars": []}}}, "ray.runtime_env.java_jars", "a job runs Python"),
    ({"ray": {"runtime_env": {"mpi": {}}}}, "ray.runtime_env.mpi", "verl starts its processes"),
    (
        {"ray": {"runtime_env": {"worker_process_setup_hook": "f"}}},
        "ray.runtime_env.worker_process_setup_hook",
        "the collection has its own",
    ),
    ({"ray": {"runtime_env": {"nsigt": "default"}}}, "ray.runtime_env.nsigt", 'did you mean "nsight"?'),
    ({"ray": {"runtime_env": {"zzz": 1}}}, "ray.runtime_env.zzz", "known keys: env_vars, config, nsight, rocprof_sys"),
    ({"ray": {"runtime_env": {"nsight": 1}}}, "ray.runtime_env.nsight", "is 1: give the name"),
    ({"ray": {"runtime_env": {"rocprof_sys": {1: 2}}}}, "ray.runtime_env.rocprof_sys", "is {1: 2}"),
    ({"ray": {"runtime_env": {"env_vars": ["A"]}}}, "ray.runtime_env.env_vars", "is ['A']: give a mapping"),
    ({"ray": {"runtime_env": {"env_vars": {"HF_TOKEN": "x"}}}}, "ray.runtime_env.env_vars.HF_TOKEN", "a secret there"),
    ({"ray": {"runtime_env": {"env_vars": {"RAY_X": "x"}}}}, "ray.runtime_env.env_vars.RAY_X", "belong to the cluster"),
    ({"ray": {"runtime_env": {"config": 5}}}, "ray.runtime_env.config", "is 5: give a mapping"),
    ({"ray": {"runtime_env": {"config": {"eager": 1}}}}, "ray.runtime_env.config.eager", "is not known"),
    (
        {"ray": {"runtime_env": {"config": {"setup_timeout_seconds": 0}}}},
        "ray.runtime_env.config.setup_timeout_seconds",
        "is 0: give a number of seconds",
    ),
    (
        {"ray": {"runtime_env": {"config": {"setup_timeout_seconds": True}}}},
        "ray.runtime_env.config.setup_timeout_seconds",
        "is True",
    ),
    (
        {"ray": {"runtime_env": {"config": {"eager_install": 1}}}},
        "ray.runtime_env.config.eager_install",
        "is 1: give true or false",
    ),
    ({"workload": "sft", "reward_fn_path": "r.py"}, "reward_fn_path", "sft has no rewards"),
    (
        {"env_vars": {"RAY_AUTH_TOKEN": "x"}},
        "env_vars.RAY_AUTH_TOKEN",
        "variables of Ray belong to the cluster: remove it, or set it for the whole cluster with ray_node_env",
    ),
    ({"env_vars": {"RAY_DEBUG": 1}}, "env_vars.RAY_DEBUG", "set debugger: legacy, or debugger: post_mortem"),
    ({"env_vars": {"1A": "x"}}, "env_vars.1A", "is not the name of an environment variable"),
    ({"env_vars": {"A-B": "x"}}, "env_vars.A-B", "use letters, digits and _"),
    ({"env_vars": {True: "x"}}, "env_vars.True", "is not the name of an environment variable"),
    ({"env_vars": {None: "x"}}, "env_vars.None", "is not the name of an environment variable"),
    (
        {"env_vars": {"WANDB_API_KEY": "x"}},
        "env_vars.WANDB_API_KEY",
        "set secrets: [WANDB_API_KEY], and add its value to job_secrets",
    ),
    ({"env_vars": {"HF_TOKEN": "x"}}, "env_vars.HF_TOKEN", "readable in the archive and in Ray's dashboard"),
    ({"env_vars": {"A": None}}, "env_vars.A", "is None: give a string or a number"),
    ({"env_vars": {"A": ["x"]}}, "env_vars.A", "is ['x']"),
    ({"env_vars": {"A": {"b": 1}}}, "env_vars.A", "is {'b': 1}"),
    ({"env_vars": {"HF_HOME": "/x"}}, "env_vars.HF_HOME", "it is hf/ under the shared root"),
    (
        {"env_vars": {"VERL_FILE_LOGGER_PATH": "/x"}},
        "env_vars.VERL_FILE_LOGGER_PATH",
        "metrics belong in the archive: remove it",
    ),
    ({"resources": {"nnodes": 0}}, "resources.nnodes", "is 0: give 1 or more, or leave it out to use all"),
    ({"resources": {"nnodes": True}}, "resources.nnodes", "is True: a truth value"),
    ({"resources": {"gpus_per_node": -1}}, "resources.gpus_per_node", "is -1"),
    ({"ray": {"address": "head:8265"}}, "ray.address", "'head:8265' is not an address"),
    ({"ray": {"address": "file:///etc/passwd"}}, "ray.address", "give scheme, host and port only, such as http://127"),
    ({"shared_root": "/private/../etc"}, "shared_root", "'/private/../etc' contains .."),
    ({"model": "/private/${oc.env:HF_TOKEN}"}, "model", "has characters that Hydra or a shell would replace"),
    ({"dataset": "/private/a\nb"}, "dataset", "rename it without $ and line breaks"),
    ({"code_path": "/private/$(id)"}, "code_path", "'/private/$(id)' has characters"),
    ({"reward_fn_path": "$A/r.py"}, "reward_fn_path", "'$A/r.py' has characters"),
    ({"env_vars": {"ARGUS_VERL_X": "x"}}, "env_vars.ARGUS_VERL_X", "names with ARGUS_VERL_ belong to this collection"),
    (
        {"env_vars": {"A": "postgres://u:p@db/x"}},
        "env_vars.A",
        "contains a URL with a password, readable in the archive",
    ),
    ({"env_vars": {"A": "\x1b[31m"}}, "env_vars.A", "contains the control character U+001B: remove it"),
    ({"tags": {"by": "hf_0123456789abcdefgh"}}, "tags.by", "contains an access key, readable in the archive"),
    ({"secrets": ["LD_PRELOAD"]}, "secrets.LD_PRELOAD", "decides which libraries a program loads"),
    ({"secrets": ["PYTHONPATH"]}, "secrets.PYTHONPATH", "decides what an interpreter runs"),
    ({"trainer_overrides": ["hydra.run.dir=/tmp"]}, "trainer_overrides.hydra.run.dir", "belong in the job's archive"),
    ({"trainer_overrides": ["--config-dir=/tmp"]}, "trainer_overrides.--config-dir", "is an option of Hydra's command"),
    ({"trainer_overrides": ["a=${oc.env:HF_TOKEN}"]}, "trainer_overrides.a", "contains an interpolation of oc.env"),
    ({"trainer_overrides": {"a": "hf_0123456789abcdefgh"}}, "trainer_overrides.a", "contains an access key"),
    ({"ray": {"resources": {"entrypoint_num_cpus": -1}}}, "ray.resources.entrypoint_num_cpus", "is -1"),
    ({"ray": {"resources": {"entrypoint_num_cpus": math.nan}}}, "ray.resources.entrypoint_num_cpus", "is nan"),
    (
        {"ray": {"resources": {"entrypoint_resources": {"worker_node": 1, "CPU": 1}}}},
        "ray.resources.entrypoint_resources",
        "must not contain CPU: use ray.resources.entrypoint_num_cpus",
    ),
    (
        {"ray": {"resources": {"entrypoint_resources": {"worker_node": 1, "GPU": 1}}}},
        "ray.resources.entrypoint_resources",
        "must not contain GPU",
    ),
    (
        {"ray": {"resources": {"entrypoint_resources": {}}}},
        "ray.resources.entrypoint_resources",
        "contains nothing that keeps the driver off the head: keep {worker_node: 1}",
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
    (
        {"trainer_overrides": {"trainer": {"nnodes": 2}}, "resources": {"nnodes": 1}},
        "trainer_overrides.trainer.nnodes",
        "resources.nnodes",
    ),
    (
        {"trainer_overrides": ["++trainer.n_gpus_per_node=all"]},
        "trainer_overrides.trainer.n_gpus_per_node",
        "is controlled by the JobSpec: set resources.gpus_per_node",
    ),
    (
        {"trainer_overrides": ["trainer.default_local_dir = /tmp"]},
        "trainer_overrides.trainer.default_local_dir",
        "remove it; with a submission_id, it may repeat <shared_root>/jobs/<submission_id>/checkpoints",
    ),
    (
        {"trainer_overrides": {"algorithm.adv_estimator": "gae"}},
        "trainer_overrides.algorithm.adv_estimator",
        "set workload: ppo or workload: grpo",
    ),
    (
        {"trainer_overrides": {"custom_reward_function": {"path": "/x.py"}}},
        "trainer_overrides.custom_reward_function.path",
        "set reward_fn_path; verl 0.9 silently ignores this key",
    ),
    (
        {"trainer_overrides": {"ray_kwargs.ray_init.num_cpus": 8}},
        "trainer_overrides.ray_kwargs.ray_init.num_cpus",
        "the job joins an existing cluster",
    ),
    (
        {"trainer_overrides": {"reward": {"+custom_reward_function.name": "f"}}},
        "trainer_overrides.reward.custom_reward_function.name",
        "set reward_fn_path: FILE:FUNCTION",
    ),
    ({"env_vars": {"ARGUS_VERL_JOB": "x"}}, "env_vars.ARGUS_VERL_JOB", "it marks the job's processes"),
    ({"env_vars": {"ARGUS_VERL_ARCHIVE": "/x"}}, "env_vars.ARGUS_VERL_ARCHIVE", "it is the path of the job's archive"),
    ({"secrets": ["HF_TOKEN=hf_abc"]}, "secrets.HF_TOKEN=hf_abc", "give names only, no values"),
    ({"secrets": "A-B"}, "secrets.A-B", "is not the name of an environment variable"),
    ({"secrets": {"HF_TOKEN": "x"}}, "secrets", "should be a valid list"),
    ({"secrets": ["RAY_AUTH_TOKEN"]}, "secrets.RAY_AUTH_TOKEN", "is set by the cluster or for every job"),
    ({"secrets": ["HF_HOME"]}, "secrets.HF_HOME", "for every job: remove it"),
    ({"secrets": ["MINE"], "env_vars": {"MINE": 1}}, "secrets.MINE", "is also in env_vars: remove it from env_vars"),
    ({"launcher": "mpirun"}, "launcher", "is 'mpirun', and should be 'ray' or 'torchrun'"),
    ({"launcher": "torchrun"}, "launcher", "torchrun starts sft only: verl needs Ray for grpo: remove it"),
    (
        {"env_vars": {"ROCR_VISIBLE_DEVICES": "0"}},
        "env_vars.ROCR_VISIBLE_DEVICES",
        "and verl raises with it: remove it",
    ),
    ({"env_vars": {"HIP_VISIBLE_DEVICES": "0"}}, "env_vars.HIP_VISIBLE_DEVICES", "cannot be set: Ray sets it for each"),
    ({"retries": -1}, "retries", "is -1: give the number of further attempts, 0 to 100"),
    ({"retries": 101}, "retries", "is 101"),
    ({"retries": True}, "retries", "is True"),
    ({"retries": "often"}, "retries", "should be a valid integer"),
    ({"deadline": "soon"}, "deadline", "'soon' is not a duration: give seconds, or a value such as 90m, 1h30m or 2d"),
    ({"deadline": ""}, "deadline", "'' is not a duration"),
    ({"deadline": "1h 30m"}, "deadline", "'1h 30m' is not a duration"),
    ({"priority": 1001}, "priority", "is 1001"),
    ({"priority": "high"}, "priority", "should be a valid integer"),
    ({"queue_patience": "5w"}, "queue_patience", "'5w' is not a duration"),
    ({"wait_for_resources": "5w"}, "wait_for_resources", "'5w' is not a duration"),
    ({"wait_for_resources": "30m1h"}, "wait_for_resources", "'30m1h' is not a duration"),
    ({"wait_for_resources": "inf"}, "wait_for_resources", "'inf' is not a duration"),
    ({"start_timeout": "an hour"}, "start_timeout", "'an hour' is not a duration"),
    ({"stall_timeout": "-5"}, "stall_timeout", "'-5' is not a duration"),
    ({"stall_timeout": "m"}, "stall_timeout", "'m' is not a duration"),
    ({"stall_timeout": False}, "stall_timeout", "'False' is not a duration"),
    ({"on_stall": "kill"}, "on_stall", "is 'kill', and should be 'report' or 'stop'"),
    ({"resume_from": "jobs/grpo-1"}, "resume_from", "'jobs/grpo-1' is not a submission id"),
    ({"resume_from": "grpo-1~2"}, "resume_from", "give the id of the job whose last checkpoint this job resumes from"),
    (
        {"resume_from": "grpo-1", "trainer_overrides": {"trainer.resume_mode": "auto"}},
        "trainer_overrides.trainer.resume_mode",
        "contradicts resume_from: keep only one of them",
    ),
    (
        {"resume_from": "grpo-1", "trainer_overrides": ["++trainer.resume_from_path=/x"]},
        "trainer_overrides.trainer.resume_from_path",
        "contradicts resume_from",
    ),
    ({"debugger": "pdb"}, "debugger", "is 'pdb', and should be 'post_mortem' or 'legacy'"),
    ({"debugger": True}, "debugger", "is True, and should be 'post_mortem'"),
    ({"tags": {"team": ["a"]}}, "tags.team", "is ['a']: give a string or a number"),
    ({"tags": {"team": {"a": 1}}}, "tags.team", "is {'a': 1}"),
    ({"tags": ["a"]}, "tags", "should be a valid mapping"),
    ({"tags": "mine"}, "tags", "write NAME=VALUE"),
    ({"accept": ["everything"]}, "accept", "is 'everything', and should be 'requirements' or 'space'"),
    ({"accept": {"space": True}}, "accept", "should be a valid list"),
    ({"check_reward": -1}, "check_reward", "is -1: give the number of rows"),
    ({"check_reward": 65, "reward_fn_path": "r.py"}, "check_reward", "is 65: give the number of rows"),
    ({"check_reward": 1}, "check_reward", "there is no reward_fn_path"),
    ({"deadline": "3651d"}, "deadline", "'3651d' is longer than 3650 days"),
    (
        {"trainer_overrides": ["data.train_batch_size=8", "+data.train_batch_size=16"]},
        "trainer_overrides.data.train_batch_size",
        "is set 2 times, to 8 and 16: keep one of them",
    ),
    ({"trainer_overrides": {"a.b": 1, "a": {"b": 2}}}, "trainer_overrides.a.b", "is set 2 times, to 1 and 2"),
    ({"acept": ["space"]}, "acept", 'did you mean "accept"?'),
    ({"dead_line": "1h"}, "dead_line", 'did you mean "deadline"?'),
    ({"env_vars": {"RAY_ADDRESS": "x"}}, "env_vars.RAY_ADDRESS", "every job joins the cluster that it is submitted to"),
    ({"env_vars": {"RAY_DEBUG_POST_MORTEM": 1}}, "env_vars.RAY_DEBUG_POST_MORTEM", "set debugger: post_mortem"),
    ({"env_vars": {"MY_PASSWORD": "x"}}, "env_vars.MY_PASSWORD", "set secrets: [MY_PASSWORD]"),
    ({"env_vars": {"openai_apikey": "x"}}, "env_vars.openai_apikey", "set secrets: [openai_apikey]"),
    ({"code_path": "-verl"}, "code_path", "'-verl' is neither a name"),
    ({"reward_fn_path": "/private/../r.py"}, "reward_fn_path", "/private/../r.py is outside the shared root /private"),
    (
        {"reward_fn_path": "a/../r.py:f"},
        "reward_fn_path",
        "'a/../r.py:f' is neither a Python file nor a function of a module",
    ),
    ({"ray": {"resources": {"entrypoint_num_cpus": math.inf}}}, "ray.resources.entrypoint_num_cpus", "is inf"),
    ({"resources": {"gpus_per_node": False}}, "resources.gpus_per_node", "is False: a truth value"),
    ({"retries": False}, "retries", "is False: a truth value"),
    ({"resume_from": ""}, "resume_from", "'' is not a submission id"),
    ({"depends_on": "A"}, "depends_on", "'A' is not a submission id"),
    ({"trainer_overrides": ["~trainer.nnodes"]}, "trainer_overrides.trainer.nnodes", "is controlled by the JobSpec"),
]


def keys(given: Mapping[Any, Any], options: Mapping[str, Any], where: str = "") -> Iterator[str]:
    """The given keys that are options, those in mappings with dots."""
    for key, value in given.items():
        if key in options:
            yield f"{where}{key}"
            if isinstance(value, Mapping):
                yield from keys(value, options[key], f"{where}{key}.")


def all_keys(options: Mapping[str, Any], where: str = "") -> Iterator[str]:
    for key, below in options.items():
        yield f"{where}{key}"
        yield from all_keys(below, f"{where}{key}.")


def test_every_malformed_jobspec_has_a_finding_of_its_own() -> None:
    known: dict[str, dict[Any, Any]] = {}
    for changes, key, part in MALFORMED:
        own = [
            f"{finding.key}: {finding.what}: {finding.todo}"
            for finding in findings_of(changes)
            if finding.key == key and part in f"{finding.what}: {finding.todo}"
        ]
        assert len(own) == 1, (changes, own)
        # The value of an override is not in the text.
        if not key.startswith("trainer_overrides."):
            assert own[0] not in known, (changes, known.get(own[0]))
        known[own[0]] = changes
    assert len(known) >= 60


def test_every_key_of_a_jobspec_can_be_wrong() -> None:
    assert {key for changes, _key, _part in MALFORMED for key in keys(changes, KEYS)} == set(all_keys(KEYS))


@pytest.mark.parametrize(("changes", "key", "part"), MALFORMED, ids=[str(case[0])[:60] for case in MALFORMED])
def test_a_malformed_jobspec(changes: dict[Any, Any], key: str, part: str) -> None:
    findings = findings_of(changes)
    texts = [f"{finding.what}: {finding.todo}" for finding in findings if finding.key == key]
    assert any(part in text for text in texts), findings
    assert {finding.severity for finding in findings} == {ERROR}


def test_where_names_the_key_for_people() -> None:
    """Overrides and secrets are in lists, so their key is not a path in the JobSpec."""
    for changes, _key, _part in MALFORMED:
        for finding in findings_of(changes):
            top, _dot, rest = finding.key.partition(".")
            listed = top in ("trainer_overrides", "secrets") and rest
            assert finding.where == (f"{top}: {rest}" if listed else finding.key)


@pytest.mark.parametrize("amount", [0, 0.0])
def test_a_resource_without_an_amount_does_not_keep_the_driver_off_the_head(amount: Any) -> None:
    (finding,) = findings_of({"ray": {"resources": {"entrypoint_resources": {"worker_node": amount}}}})
    assert finding.what == "contains nothing that keeps the driver off the head"
    assert findings_of({"ray": {"resources": {"entrypoint_resources": {"worker_node": amount, "b": 0.01}}}}) == []


@pytest.mark.parametrize("amount", [-1, 0.00009, "1", None, True])
def test_an_amount_that_ray_refuses(amount: Any) -> None:
    key = "ray.resources.entrypoint_resources"
    (finding,) = findings_of({"ray": {"resources": {"entrypoint_resources": {"worker_node": 1, "a": amount}}}})
    assert (finding.key, finding.what) == (f"{key}.a", f"is {amount!r}")
    assert findings_of({"ray": {"resources": {"entrypoint_resources": {"a": 0.0001}}}}) == []
    if isinstance(amount, float):
        (finding,) = findings_of({"ray": {"resources": {"entrypoint_num_cpus": amount}}})
        assert finding.key == "ray.resources.entrypoint_num_cpus"


@pytest.mark.parametrize("key", OWNED_OVERRIDES)
@pytest.mark.parametrize("prefix", ["", "+", "++", "~"])
def test_settings_that_the_jobspec_controls(key: str, prefix: str) -> None:
    (finding,) = findings_of({"trainer_overrides": [f"{prefix}{key}=x"]})
    assert (finding.key, finding.todo) == (f"trainer_overrides.{key}", OWNED_OVERRIDES[key])


VALID: list[dict[str, Any]] = [
    {"secrets": ["HF_TOKEN", "_mine"]},
    {"retries": 100},
    {"workload": "sft", "launcher": "torchrun"},
    {"on_stall": "stop"},
    {"resume_from": "grpo-1", "trainer_overrides": {"trainer.save_freq": 5}},
    {"trainer_overrides": {"trainer.resume_mode": "disable"}},
    {"debugger": "legacy"},
    {"tags": {"team": "a", "try": 2, "none": None}},
    {"accept": ["space", "requirements"]},
    {"check_reward": 64, "reward_fn_path": "r.py"},
    {"check_reward": 0},
    {"deadline": "3650d"},
    # A group that is replaced, and one in two packages.
    {"trainer_overrides": ["~data.sampler", "+data.sampler=x", "actor@a.b=x", "actor@c.d=x"]},
    {"env_vars": {"A": "x", "_b": 1, "C2": 0.5, "D": True, "TOKENIZER": "x", "TOKENIZERS_PARALLELISM": "false"}},
    {"resources": {"nnodes": 1, "gpus_per_node": 1}},
    {"ray": {"address": "https://head:8265", "resources": {"entrypoint_num_cpus": 0}}},
    {"code_path": "a" * 63, "model": "A.b_c-1", "dataset": "/private/x"},
    {"shared_root": "/mnt", "model": "/mnt/x/y"},
    {"reward_fn_path": "sub/r.py"},
    {"reward_fn_path": "sub.r:score"},
    {"ray": {"runtime_env": {"env_vars": {"A": 1}, "config": {"setup_timeout_seconds": -1, "eager_install": False}}}},
    {"ray": {"runtime_env": {"nsight": {"t": "cuda"}, "rocprof_sys": "default"}}},
    {"reward_fn_path": "/private/r.py:_score2"},
]


@pytest.mark.parametrize("changes", VALID, ids=str)
def test_valid_values(changes: dict[str, Any]) -> None:
    assert findings_of(changes) == []


# --- The release of verl ----------------------------------------------------------------------------------------------


def test_the_device_of_the_sft_driver() -> None:
    spec = jobspec(workload="sft", trainer_overrides={"trainer.device": "cpu"})
    assert version_findings(spec, Profile("0.8.0", (0, 8, 0))) == [
        Finding(
            "trainer_overrides: trainer.device",
            "is cpu, but the driver of verl 0.8.0 works with cuda only",
            "remove it",
            key="trainer_overrides.trainer.device",
        )
    ]
    assert version_findings(spec, NEWEST) == []
    (deleted,) = version_findings(jobspec(workload="sft", trainer_overrides=["~trainer.device"]), NEWEST)
    assert deleted.what == "is empty, but the driver of verl 0.9.1 works with cpu only"
    # Only SFT has its device on the driver.
    assert version_findings(jobspec(trainer_overrides={"trainer.device": "npu"}), NEWEST) == []


def test_the_device_of_sft_under_torchrun() -> None:
    changed = jobspec(workload="sft", launcher="torchrun", trainer_overrides={"trainer.device": "cpu"})
    (finding,) = version_findings(changed, NEWEST)
    assert (finding.key, finding.todo) == ("trainer_overrides.trainer.device", "remove it")
    assert finding.what == "is decided by the GPUs of the workers"


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.version)
def test_only_some_releases_have_the_cpu_backend(profile: Profile) -> None:
    for workload, first in (("grpo", (0, 9, 0)), ("sft", (0, 8, 0))):
        findings = accelerator_findings(workload, profile, CPU)
        assert [finding.key for finding in findings] == (["code_path"] if profile.release < first else [])
        assert accelerator_findings(workload, profile, CUDA) == []


def test_overrides_that_a_release_does_not_read() -> None:
    overrides = ["+custom_reward_function.reward_kwargs.a=1", "trainer.logger=[console,trackio,nothing]", "data.seed=1"]
    renamed, logger = version_findings(jobspec(trainer_overrides=overrides), NEWEST)
    key = "trainer_overrides.custom_reward_function.reward_kwargs.a"
    what, todo = "is not read by verl 0.9.1", "set reward.custom_reward_function.reward_kwargs.a instead"
    assert renamed == Finding(key.replace(".", ": ", 1), what, todo, key=key)
    assert (logger.key, logger.what) == ("trainer_overrides.trainer.logger", "verl 0.9.1 has no logger nothing")
    assert logger.todo == (
        "use some of console, wandb, tracking, mlflow, swanlab, vemlp_wandb, tensorboard, clearml, file, trackio, "
        "rl_insight"
    )
    (only,) = version_findings(jobspec(trainer_overrides=overrides), Profile("0.8.0", (0, 8, 0)))
    assert only.what == "verl 0.8.0 has no logger nothing"


def test_every_unknown_logger_is_named() -> None:
    found = version_findings(jobspec(trainer_overrides=["trainer.logger=['file',\"a\",b]"]), NEWEST)
    assert [finding.what for finding in found] == ["verl 0.9.1 has no logger a", "verl 0.9.1 has no logger b"]
    assert version_findings(jobspec(trainer_overrides=["trainer.logger=console"]), NEWEST) == []


def test_an_override_that_the_jobspec_controls_is_reported_once() -> None:
    given = {"trainer_overrides": {"custom_reward_function.path": "/x.py"}}
    assert len(findings_of(given)) == 1
    findings, spec = parse_jobspec({**MINIMAL, **given})
    assert findings
    assert spec
    assert version_findings(spec, NEWEST) == []
