from __future__ import annotations

import os
import time
from typing import Any

import pytest
from jobs import findings_of

from argus.common.findings import Finding
from argus.jobspec.environment import (
    NEVER_SECRET,
    form_of_secret,
    never_secret,
    secret_value_findings,
)

# --- Names ------------------------------------------------------------------------------------------------------------

RUN_THINGS = [
    "PATH",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "DYLD_INSERT_LIBRARIES",
    "GLIBC_TUNABLES",
    "MALLOC_CONF",
    "GCONV_PATH",
    "HOSTALIASES",
    "BASH_ENV",
    "ENV",
    "SHELLOPTS",
    "PS4",
    "IFS",
    "PROMPT_COMMAND",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONHOME",
    "PYTHONWARNINGS",
    "PYTHONBREAKPOINT",
    "NODE_OPTIONS",
    "PERL5LIB",
    "PERL5OPT",
    "RUBYOPT",
    "RUBYLIB",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "CLASSPATH",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_ASKPASS",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_KEY_0",
    "GIT_EXTERNAL_DIFF",
    "GIT_PROXY_COMMAND",
    "GIT_DIR",
    "SSH_AUTH_SOCK",
    "SSH_ASKPASS",
    "EDITOR",
    "PAGER",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTP_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "no_proxy",
    "HOME",
    "USER",
    "SHELL",
    "TMPDIR",
    "ANSIBLE_VAULT_PASSWORD_FILE",
    "ANSIBLE_CONFIG",
    "VERL_FILE_LOGGER_PATH",
    "HYDRA_FULL_ERROR",
    "TORCH_EXTENSIONS_DIR",
    "PYTORCH_CUDA_ALLOC_CONF",
    "NCCL_NET_PLUGIN",
    "CUDA_VISIBLE_DEVICES",
    "CUDA_INJECTION64_PATH",
    "VLLM_PLUGINS",
    "OPENSSL_CONF",
    "OMP_NUM_THREADS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "DOCKER_HOST",
    "DOCKER_CONFIG",
    "PIP_INDEX_URL",
    "MAKEFLAGS",
    "path",
    "Ld_Preload",
    "pythonpath",
]
SECRETS = [
    "HF_TOKEN",
    "WANDB_API_KEY",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "NVIDIA_API_KEY",
    "NGC_API_KEY",
    "VLLM_API_KEY",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "GITHUB_TOKEN",
    "GH_PAT",
    "GIT_TOKEN",
    "GIT_PASSWORD",
    "DATABASE_URL",
    "REDIS_URL",
    "MLFLOW_TRACKING_PASSWORD",
    "CANARY_API_KEY",
    "MINE",
    "_mine",
    "UV_PUBLISH_TOKEN",
    "PATHS",
    "OLD_PATH",
    "HOMES",
    "USERNAME",
    "SWANLAB_API_KEY",
    "COMET_API_KEY",
]


@pytest.mark.parametrize("name", RUN_THINGS)
def test_names_that_change_how_programs_run_are_never_secret(name: str) -> None:
    (finding,) = findings_of({"secrets": [name]})
    assert finding.key == f"secrets.{name}"
    assert finding.what == "is set by the cluster or for every job" or finding.what.endswith(
        ", and is never passed on as a secret"
    )
    assert finding.todo == "remove it"


@pytest.mark.parametrize(
    "name", ["RAY_ADDRESS", "RAY_AUTH_TOKEN", "ray_address", "ARGUS_VERL_JOB", "ARGUS_VERL_NEW", "HF_HOME"]
)
def test_names_of_the_cluster_are_never_secret(name: str) -> None:
    assert never_secret(name) == "is set by the cluster or for every job"


def test_the_hook_of_ray_is_that_of_the_collection() -> None:
    name = "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR"
    (finding,) = findings_of({"env_vars": {name: "mine.hook"}})
    assert (finding.key, finding.severity) == (f"env_vars.{name}", "error")
    assert never_secret(name)


@pytest.mark.parametrize("name", SECRETS)
def test_usual_names_of_secrets(name: str) -> None:
    assert findings_of({"secrets": [name]}) == []


@pytest.mark.parametrize("name", ["A-B", "A B", "1A", "", "A=b", "A\n", "Ä", "A;id", "$A", "A.B"])
def test_what_is_no_name(name: str) -> None:
    (finding,) = findings_of({"secrets": [name]})
    assert (finding.what, finding.todo) == ("is not the name of an environment variable", "give names only, no values")


def test_every_group_of_names_has_an_example() -> None:
    said = {never_secret(name) for name in RUN_THINGS}
    assert {f"decides {what}, and is never passed on as a secret" for what in NEVER_SECRET} <= said


# --- Values -----------------------------------------------------------------------------------------------------------


def test_a_secret_off_the_list_is_refused_whether_it_exists_or_not() -> None:
    present = next(iter(os.environ))
    found = secret_value_findings([present, "THERE_IS_NONE", "A"], {"A": "12345", "B": None})
    assert found == [
        Finding(
            f"secrets: {name}",
            "is not allowed by the inventory",
            "add its value to job_secrets, from a vault, or its name to job_secrets_from_environment",
            key=f"secrets.{name}",
        )
        for name in (present, "THERE_IS_NONE")
    ]


@pytest.mark.parametrize("values", [{"HF_TOKEN": ""}, {"HF_TOKEN": None}], ids=str)
def test_a_secret_without_a_value(values: dict[str, Any]) -> None:
    assert secret_value_findings(["HF_TOKEN"], values) == [
        Finding(
            "secrets: HF_TOKEN",
            "has no value",
            "add HF_TOKEN to job_secrets, from a vault; or export it, if the inventory allows that",
            key="secrets.HF_TOKEN",
        )
    ]


@pytest.mark.parametrize("value", ["abc", 12345, ["hf_secret"]])
def test_a_secret_that_could_not_be_masked(value: Any) -> None:
    (finding,) = secret_value_findings(["A"], {"A": value})
    assert finding.what == "is not a string of at least 4 characters, and could not be masked in logs"
    assert finding.key == "secrets.A"
    assert str(value) not in str(finding)


def test_secrets_with_values() -> None:
    assert secret_value_findings(["A", "B"], {"A": "1234", "B": "größe", "OTHER": 1}) == []
    assert secret_value_findings([], {}) == []


# --- env_vars ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "DATABASE_URL",
        "WANDB_KEY",
        "GH_PAT",
        "HF_TOKEN",
        "MY_PASSWORD",
        "DB_PASS",
        "REDIS_URL",
        "AWS_ACCESS_KEY_ID",
        "SLACK_WEBHOOK",
        "PRIVATE_KEY",
        "SENTRY_DSN",
        "API_KEYS",
        "GITHUB_AUTH",
        "openai_apikey",
        "Api_Key",
    ],
)
def test_secrets_are_refused_in_env_vars(name: str) -> None:
    (finding,) = findings_of({"env_vars": {name: "x"}})
    assert finding.what == "a secret there would be readable in the archive and in Ray's dashboard"
    assert finding.todo == f"set secrets: [{name}], and add its value to job_secrets"


@pytest.mark.parametrize(
    "name",
    [
        "NCCL_DEBUG",
        "OMP_NUM_THREADS",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "PYTHONPATH",
        "HTTP_PROXY",
        "TOKENIZERS_PARALLELISM",
        "VLLM_USE_V1",
        "HYDRA_FULL_ERROR",
        "TORCH_EXTENSIONS_DIR",
        "MALLOC_CONF",
        "HOME",
        "PATH",
        "VERL_LOGGING_LEVEL",
        "WANDB_MODE",
        "WANDB_PROJECT",
        "MLFLOW_TRACKING_URI",
        "HF_HUB_OFFLINE",
        "MAX_TOKENS",
    ],
)
def test_env_vars_change_how_the_job_runs(name: str) -> None:
    """They reach only processes that run the job's code."""
    assert findings_of({"env_vars": {name: "x"}}) == []


@pytest.mark.parametrize("name", ["CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"])
def test_the_gpus_of_a_process_are_chosen_by_ray(name: str) -> None:
    (finding,) = findings_of({"env_vars": {name: "0"}})
    assert (finding.key, finding.severity) == (f"env_vars.{name}", "error")


FORMS = {
    "a URL with a password": ["postgres://ann:geheim@db:5432/x", "x http://:pw@h", "redis://default:p%40ss@h/0"],
    "a private key": [
        "-----BEGIN PRIVATE KEY-----\nMII",
        "-----BEGIN RSA PRIVATE KEY-----",
        "-----BEGIN OPENSSH PRIVATE KEY",
    ],
    "a JSON Web Token": ["eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2ln"],
    "an access key": [
        *(
            "AKIA" + "IOSFODNN7EXAMPLE",
            "hf_" + "a" * 34,
            "ghp_" + "b" * 36,
            "github_pat_" + "c" * 30,
            "glpat-" + "d" * 20,
        ),
        *("sk-" + "e" * 48, "sk-proj-" + "f_-" * 12, "sk-ant-" + "api03-" + "g" * 20, "nvapi-" + "h" * 30),
        *("xoxb-" + "1" * 12, "AIza" + "i" * 35, "key=" + "hf_" + "j" * 34),
    ],
}


@pytest.mark.parametrize(("form", "value"), [(form, value) for form, values in FORMS.items() for value in values])
def test_values_that_look_like_secrets(form: str, value: str) -> None:
    assert form_of_secret(value) == form
    changes: list[dict[str, Any]] = [
        {"env_vars": {"A": value}},
        {"tags": {"a": value}},
        {"tags": {value: "a"}},
        {"trainer_overrides": {"data.a": value}},
        {"trainer_overrides": {"data.a": ["x", {"b": value}]}},
    ]
    for change in changes:
        (finding,) = findings_of(change)
        assert finding.what.startswith(f"contains {form}, readable in the archive and in ")


@pytest.mark.parametrize(
    "value",
    [
        "http://proxy:3128",
        "http://user@host/x",
        "s3://bucket/a:b@c",
        "/private/sk-experiments-of-last-week",
        "task-0123456789abcdefghijk",
        "hf_home",
        "eyJ",
        "ghp_short",
        "risk-averse-behaviour-of-models",
        "-----BEGIN CERTIFICATE-----",
        "a:b@c",
        "AKIA",
        "1e-3",
    ],
)
def test_values_that_do_not(value: str) -> None:
    assert form_of_secret(value) == ""


@pytest.mark.parametrize(
    "piece", ["eyJ", "://", "://a:", "AKIA", "sk-", "-----BEGIN ", "hf_", "a", "SG.", "://" + "a" * 250 + ":"]
)
def test_a_long_value_takes_no_time(piece: str) -> None:
    text = piece * (1_000_000 // len(piece))
    started = time.monotonic()
    form_of_secret(text)
    assert time.monotonic() - started < 30
