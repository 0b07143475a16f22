from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest
from jobs import findings_of

from argus.jobspec.environment import form_of_secret, secret_value_findings

# --- Names ------------------------------------------------------------------------------------------------------------

# For each group, names of several of its patterns.
RUN_THINGS = [
    *("PATH", "LD_PRELOAD", "DYLD_INSERT_LIBRARIES", "GLIBC_TUNABLES", "GCONV_PATH", "HOSTALIASES", "Ld_Preload"),
    *("BASH_ENV", "ENV", "SHELLOPTS", "PS4", "IFS", "PROMPT_COMMAND", "MAKEFLAGS"),
    *("PYTHONPATH", "pythonpath", "NODE_OPTIONS", "PERL5OPT", "RUBYLIB", "_JAVA_OPTIONS", "CLASSPATH", "PIP_INDEX_URL"),
    *("GIT_SSH_COMMAND", "GIT_CONFIG_KEY_0", "SSH_AUTH_SOCK", "EDITOR", "ANSIBLE_VAULT_PASSWORD_FILE", "DOCKER_HOST"),
    *("SSL_CERT_FILE", "https_proxy", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"),
    *("HOME", "USER", "SHELL", "TMPDIR"),
    *("VERL_FILE_LOGGER_PATH", "HYDRA_FULL_ERROR", "TORCH_EXTENSIONS_DIR", "PYTORCH_CUDA_ALLOC_CONF", "VLLM_PLUGINS"),
    *("NCCL_NET_PLUGIN", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"),
]
SECRETS = [
    *("HF_TOKEN", "VLLM_API_KEY", "AWS_SECRET_ACCESS_KEY", "GIT_TOKEN", "GIT_PASSWORD", "GH_PAT", "UV_PUBLISH_TOKEN"),
    *("DATABASE_URL", "MINE", "_mine", "PATHS", "OLD_PATH", "HOMES", "USERNAME"),
]


@pytest.mark.parametrize(
    "name", [*RUN_THINGS, "RAY_ADDRESS", "RAY_AUTH_TOKEN", "ray_address", "ARGUS_VERL_JOB", "ARGUS_VERL_NEW", "HF_HOME"]
)
def test_names_that_change_how_programs_run_are_never_secret(name: str) -> None:
    assert [finding.key for finding in findings_of({"secrets": [name]})] == [f"secrets.{name}"]


@pytest.mark.parametrize("name", SECRETS)
def test_usual_names_of_secrets(name: str) -> None:
    assert findings_of({"secrets": [name]}) == []


@pytest.mark.parametrize("name", ["A-B", "A B", "1A", "", "A=b", "A\n", "Ä", "A;id", "$A", "A.B"])
def test_what_is_no_name(name: str) -> None:
    assert [finding.key for finding in findings_of({"secrets": [name]})] == [f"secrets.{name}"]


# --- Values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["", None, "abc", 12345, ["hf_secret"], "users:\nabc\n"], ids=str)
def test_a_secret_without_a_value_or_with_one_that_could_not_be_masked(value: Any) -> None:
    (finding,) = secret_value_findings(["A"], {"A": value})
    assert finding.key == "secrets.A"
    assert not value or str(value) not in str(finding)


def test_a_secret_off_the_list_is_refused_whether_it_exists_or_not() -> None:
    names = [next(iter(os.environ)), "THERE_IS_NONE"]
    refused = secret_value_findings([*names, "A"], {"A": "12345", "B": None})
    assert [finding.key for finding in refused] == [f"secrets.{name}" for name in names]
    assert len({(finding.problem, finding.remedy) for finding in refused}) == 1


# --- env_vars ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        *("DATABASE_URL", "WANDB_KEY", "GH_PAT", "HF_TOKEN", "MY_PASSWORD", "DB_PASS", "AWS_ACCESS_KEY_ID", "Api_Key"),
        *("SLACK_WEBHOOK", "SENTRY_DSN", "GITHUB_AUTH", "openai_apikey", "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"),
        *("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    ],
)
def test_secrets_and_what_ray_chooses_are_refused_in_env_vars(name: str) -> None:
    (finding,) = findings_of({"env_vars": {name: "x"}})
    assert (finding.key, finding.severity) == (f"env_vars.{name}", "error")


@pytest.mark.parametrize(
    "name",
    [
        *("NCCL_DEBUG", "OMP_NUM_THREADS", "LD_PRELOAD", "PYTHONPATH", "HTTP_PROXY", "VLLM_USE_V1", "HOME", "PATH"),
        *("TOKENIZERS_PARALLELISM", "WANDB_MODE", "MLFLOW_TRACKING_URI", "HF_HUB_OFFLINE", "MAX_TOKENS"),
    ],
)
def test_env_vars_change_how_the_job_runs(name: str) -> None:
    """They reach only processes that run the job's code."""
    assert findings_of({"env_vars": {name: "x"}}) == []


LIKE_SECRETS = [
    *("postgres://ann:geheim@db:5432/x", "x http://:pw@h", "redis://default:p%40ss@h/0"),
    *("-----BEGIN PRIVATE KEY-----\nMII", "-----BEGIN RSA PRIVATE KEY-----"),
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2ln",
    *("AKIA" + "IOSFODNN7EXAMPLE", "hf_" + "a" * 34, "ghp_" + "b" * 36, "github_pat_" + "c" * 30, "glpat-" + "d" * 20),
    *("sk-" + "e" * 48, "sk-proj-" + "f_-" * 12, "sk-ant-" + "api03-" + "g" * 20, "nvapi-" + "h" * 30),
    *("xoxb-" + "1" * 12, "AIza" + "i" * 35, "key=" + "hf_" + "j" * 34),
]
PLACES: list[dict[str, Any]] = [
    *({"env_vars": {"A": "?"}}, {"tags": {"a": "?"}}, {"tags": {"?": "a"}}, {"trainer_overrides": {"data.a": "?"}}),
    {"trainer_overrides": {"data.a": ["x", {"b": "?"}]}},
]


@pytest.mark.parametrize("value", LIKE_SECRETS)
def test_values_that_look_like_secrets(value: str) -> None:
    for place in PLACES:
        changes = json.loads(json.dumps(place).replace("?", json.dumps(value)[1:-1]))
        (finding,) = findings_of(changes)
        assert "readable in the archive" in finding.problem


@pytest.mark.parametrize(
    "value",
    [
        *("http://proxy:3128", "http://user@host/x", "s3://bucket/a:b@c", "a:b@c", "-----BEGIN CERTIFICATE-----"),
        *("/private/sk-experiments-of-last-week", "task-0123456789abcdefghijk", "risk-averse-behaviour-of-models"),
        *("hf_home", "eyJ", "ghp_short", "AKIA", "1e-3"),
    ],
)
def test_values_that_do_not(value: str) -> None:
    assert findings_of({"env_vars": {"A": value}}) == []


@pytest.mark.parametrize(
    "piece", ["eyJ", "://", "://a:", "AKIA", "sk-", "-----BEGIN ", "hf_", "a", "SG.", "://" + "a" * 250 + ":"]
)
def test_a_long_value_takes_no_time(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    started = time.monotonic()
    form_of_secret(text)
    assert time.monotonic() - started < 30
