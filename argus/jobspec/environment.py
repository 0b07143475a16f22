# SPDX-License-Identifier: Apache-2.0
"""Checks the environment variables, the runtime environment and the secrets of a JobSpec, and recognizes secrets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..archive.archive import JOB_VARIABLE
from ..common.findings import Finding, about
from ..common.shared_root import HF_HOME_DIR
from ..common.text import spelling_hint
from ..hooks import redact, worker_secrets
from ..queue.attempts import METRICS_VARIABLE
from .spec import JobSpec

ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Variables that every job has, with the reason why a JobSpec cannot set them.
OWNED_ENVIRONMENT = {
    METRICS_VARIABLE: "metrics belong in the archive",
    "HF_HOME": f"it is {HF_HOME_DIR}/ under the shared root",
    JOB_VARIABLE: "it marks the job's processes",
    worker_secrets.ARCHIVE_VARIABLE: "it is the path of the job's archive",
}
RUNTIME_ENV = "ray.runtime_env"
# The prefix of this collection's variables.
OUR_PREFIX = "ARGUS_VERL_"
# Variables of Ray with remedies of their own.
RAY_VARIABLES = {
    "__RAY_WORKER_PROCESS_SETUP_HOOK_ENV_VAR": "remove it: the hook is that of the job's secrets and its TransferQueue",
    "RAY_ADDRESS": "remove it: every job joins the cluster that it is submitted to",
    "RAY_DEBUG_POST_MORTEM": "set debugger: post_mortem",
    "RAY_DEBUG": "set debugger: legacy, or debugger: post_mortem",
}
RAY_SETS_GPUS = "Ray sets it for each process; with it, several processes would get the same GPU"
# Variables that choose GPUs, with the reason why a JobSpec cannot set them: ray/_private/accelerators/amd_gpu.py and
# verl's single_controller/base/worker.py
GPU_VARIABLES = {
    **dict.fromkeys(("CUDA_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES"), RAY_SETS_GPUS),
    "NVIDIA_VISIBLE_DEVICES": "it has an effect only when the container of a node starts",
    "ROCR_VISIBLE_DEVICES": "Ray raises without HIP_VISIBLE_DEVICES, and verl raises with it",
    "HIP_VISIBLE_DEVICES": "Ray sets it for each process, to the GPUs that the process has",
}
BUILDS_PACKAGES = "it installs packages when the job starts, on every node, and jobs download nothing"
USE_IMAGE = "add the packages to the image; see ray_image"
SHADOWS_SNAPSHOT = "Ray puts it before the snapshot on PYTHONPATH, and copies it to every node"
USE_USER_CODE = "stage it to user/code, and name that directory in env_vars: {PYTHONPATH: …}"
# Parts of Ray's runtime environment that the collection controls, with the reason and the remedy.
OWNED_PARTS = {
    "working_dir": (SHADOWS_SNAPSHOT, USE_USER_CODE),
    "py_modules": (SHADOWS_SNAPSHOT, USE_USER_CODE),
    "excludes": ("it belongs to working_dir", "remove it"),
    "pip": (BUILDS_PACKAGES, USE_IMAGE),
    "uv": (BUILDS_PACKAGES, USE_IMAGE),
    "conda": (BUILDS_PACKAGES, USE_IMAGE),
    "container": ("a job runs in the image of its nodes", "set the image of the cluster with ray_image"),
    "image_uri": ("a job runs in the image of its nodes", "set the image of the cluster with ray_image"),
    "py_executable": ("a job runs with the Python of its nodes", "remove it"),
    "java_jars": ("a job runs Python", "remove it"),
    "mpi": ("verl starts its processes itself", "remove it"),
    "worker_process_setup_hook": ("the collection has its own, for secrets and samples", "remove it"),
}
# Forms of well-known secrets. Each is bounded, so that searching a long text takes linear time.
SECRET_FORMS = {
    "a private key": re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY"),
    "a URL with a password": re.compile(r"://[^\s:@/?#]{0,256}:[^\s@/]{1,256}@"),
    "a JSON Web Token": re.compile(r"eyJ[\w-]{8,256}\.eyJ[\w-]{8}"),
    "an access key": re.compile(
        r"(?<![A-Za-z0-9])((AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])|hf_[A-Za-z0-9]{16}|gh[pousr]_[A-Za-z0-9]{20}"
        r"|github_pat_\w{20}|glpat-[\w-]{16}|sk-[A-Za-z0-9]{20}|nvapi-[\w-]{20}"
        r"|sk-(proj|ant|svcacct|admin|or)-[\w-]{16}|[rs]k_(live|test)_[A-Za-z0-9]{16}"
        r"|xox[abeprs]-[\w-]{10}|xapp-[\w-]{10}|AIza[\w-]{35}|ya29\.[\w-]{20}|npm_[A-Za-z0-9]{30}|pypi-[\w-]{16}"
        r"|wandb_v1_\w{16}|dop_v1_[a-f0-9]{32}|dapi[a-f0-9]{32}|SG\.[\w-]{16,64}\.[\w-]{16})"
    ),
}
# Names that no secret may have, even if the inventory has values for them, by what such variables decide. A JobSpec
# could use them to read settings of the controller, or to change processes that look after the job. Most are allowed
# in env_vars, which reach only processes that run the job's code anyway. Case is ignored, as in http_proxy.
FORBIDDEN_NAMES = {
    effect: re.compile(names, re.IGNORECASE)
    for effect, names in {
        "which libraries a program loads": r"PATH|(LD|DYLD|MALLOC|RESOLV|OPENSSL)_.*|GLIBC_TUNABLES|HOSTALIASES"
        r"|(GCONV_|LOC|NLS)PATH|RES_OPTIONS|LOCALDOMAIN|(C|CXX|LD)FLAGS|CC|CXX",
        "what a shell runs": r"BASH_.*|(BASH|SHELL)OPTS|ENV|PS[0-4]|IFS|(CD|F)PATH|GLOBIGNORE|PROMPT_COMMAND|ZDOTDIR"
        r"|MAKEFLAGS|MAKEFILES",
        "what an interpreter runs": r"(PYTHON|PERL|RUBY).*|GEM_(HOME|PATH)|BUNDLE_(?!.*(TOKEN|PASSWORD)).*|(LUA|R)_.*"
        r"|NODE_(OPTIONS|PATH|EXTRA_CA_CERTS)|NPM_CONFIG_(?!.*(TOKEN|PASSWORD|AUTH)).*|(_|JDK_)?JAVA_(TOOL_)?OPTIONS"
        r"|JAVA_HOME|CLASSPATH|(DOTNET|COMPLUS|PIP)_.*|UV_(?!.*(TOKEN|PASSWORD)).*|CONDA_(?!.*TOKEN).*|VIRTUAL_ENV|PHPRC"
        r"|PHP_INI_SCAN_DIR",
        "which programs another program starts": r"GIT_(?!.*(TOKEN|PASSWORD|PAT)$).*|SSH_(AUTH_SOCK|ASKPASS.*)|SUDO_.*"
        r"|EDITOR|VISUAL|(MAN)?PAGER|BROWSER|LESS.*|ANSIBLE_.*|DOCKER_(HOST|CONFIG|CONTEXT|CERT_PATH|TLS.*)",
        "whom a program talks to and trusts": r".*_PROXY|SSL_CERT_.*|SSLKEYLOGFILE|REQUESTS_CA_BUNDLE|KRB5.*"
        r"|CURL_(CA_BUNDLE|HOME)|AWS_CA_BUNDLE",
        "whose process it is and where its files are": r"HOME|USER|LOGNAME|SHELL|TMP|TEMP|TMPDIR|(OLD)?PWD|(XDG|LC)_.*"
        r"|TERM.*|LANG|LANGUAGE|TZ|TZDIR|DISPLAY|MAIL",
        "how the trainer and its libraries run": r"(VERL|HYDRA|PYTORCH|TRITON|INDUCTOR|CUDA|CUBLAS|CUDNN)_.*|OC_CAUSE"
        r"|TORCH.*|XLA_FLAGS|VLLM_PLUGINS|(NCCL|RCCL|GLOO|UCX|FI|OMPI|HIP|HSA|ROCR?|OMP|KMP|MKL)_.*"
        r"|NVIDIA_(VISIBLE_DEVICES|DRIVER_CAPABILITIES)",
    }.items()
}


def is_timeout(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and (value > 0 or value == -1)


def is_profiler_setting(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, Mapping) and all(isinstance(key, str) for key in value))


# A test of a value, and the remedy for one that fails it.
Form = tuple[Callable[[object], bool], str]
MAPPING: Form = (lambda value: isinstance(value, Mapping), "give a mapping")
PROFILER: Form = (is_profiler_setting, "give the name of a configuration, or a mapping of options")
# The parts of the runtime environment that a JobSpec may set, and the keys of its part config.
ALLOWED_PARTS: dict[str, Form] = {"env_vars": MAPPING, "config": MAPPING, "nsight": PROFILER, "rocprof_sys": PROFILER}
CONFIG_KEYS: dict[str, Form] = {
    "setup_timeout_seconds": (is_timeout, "give a number of seconds, or -1 for no limit"),
    "eager_install": (lambda value: isinstance(value, bool), "give true or false"),
}


def repeatable_variables(shared_root: str) -> dict[str, str]:
    """Variables of every job that a JobSpec may repeat with the same value."""
    # sft_trainer_ray calls ray.init() without an address, and Ray then uses this one.
    return {"RAY_ADDRESS": "auto", "HF_HOME": f"{shared_root}/{HF_HOME_DIR}"}


def variable_findings(where: str, variables: Mapping[Any, object], shared_root: str) -> Iterator[Finding]:
    """Findings about environment variables. where: the key of the JobSpec that has them."""
    repeatable = repeatable_variables(shared_root).items()
    for name, value in variables.items():
        key, secrets = f"{where}.{name}", f"set secrets: [{name}], and add its value to job_secrets"
        if (name, value) in repeatable:
            continue
        # YAML reads names such as `on` as booleans.
        if not isinstance(name, str) or not ENVIRONMENT_NAME.fullmatch(name):
            yield about(key, "is not the name of an environment variable", "use letters, digits and _")
        elif name.startswith("RAY_") or name in RAY_VARIABLES:
            # RAY_AUTH_TOKEN there leaves the job PENDING for minutes; others break the connection to the cluster.
            remedy = RAY_VARIABLES.get(name, "remove it, or set it for the whole cluster with ray_node_env")
            yield about(key, "variables of Ray belong to the cluster", remedy)
        elif name in OWNED_ENVIRONMENT:
            yield about(key, f"is set for every job: {OWNED_ENVIRONMENT[name]}", "remove it")
        elif name in GPU_VARIABLES:
            yield about(key, f"cannot be set: {GPU_VARIABLES[name]}", "remove it; set resources.gpus_per_node")
        elif name.startswith(OUR_PREFIX):
            yield about(key, f"names with {OUR_PREFIX} belong to this collection", "choose another name")
        elif redact.is_secret_name(name):
            yield about(key, "a secret there would be readable in the archive and in Ray's dashboard", secrets)
        elif form := form_of_secret(str(value)):
            yield about(key, f"contains {form}, readable in the archive and in Ray's dashboard", secrets)
        if isinstance(value, (dict, list)) or value is None:
            yield about(key, f"is {value!r}", "give a string or a number")


def requested_variables(spec: JobSpec) -> dict[str, str]:
    """The variables of the JobSpec, from runtime_env and env_vars; the latter count if both have one."""
    runtime_variables = spec.runtime_env.get("env_vars")
    in_runtime_env = runtime_variables if isinstance(runtime_variables, Mapping) else {}
    return {str(name): str(value) for name, value in {**in_runtime_env, **spec.env_vars}.items()}


def runtime_env_findings(spec: JobSpec) -> Iterator[Finding]:
    """Findings about ray.runtime_env."""
    env = spec.runtime_env
    for name in (name for name in env if name in OWNED_PARTS):
        why, remedy = OWNED_PARTS[name]
        yield about(f"{RUNTIME_ENV}.{name}", f"cannot be set: {why}", remedy)
    others = {name: value for name, value in env.items() if name not in OWNED_PARTS}
    yield from form_findings(RUNTIME_ENV, others, ALLOWED_PARTS)
    if isinstance(config := env.get("config"), Mapping):
        yield from form_findings(f"{RUNTIME_ENV}.config", config, CONFIG_KEYS)
    if isinstance(variables := env.get("env_vars"), Mapping):
        yield from variable_findings(f"{RUNTIME_ENV}.env_vars", variables, spec.shared_root)


def form_findings(where: str, values: Mapping[Any, object], forms: Mapping[str, Form]) -> Iterator[Finding]:
    """Findings about keys that have no form, and about values that do not have it. where: the key of the mapping."""
    for name, value in values.items():
        if name not in forms:
            hint = spelling_hint(str(name), forms) or f"known keys: {', '.join(forms)}"
            yield about(f"{where}.{name}", "is not known", hint)
        elif not forms[name][0](value):
            yield about(f"{where}.{name}", f"is {value!r}", forms[name][1])


def form_of_secret(text: str) -> str:
    """The kind of secret that a text contains, or ""."""
    return next((form for form, pattern in SECRET_FORMS.items() if pattern.search(text)), "")


def forbidden_name_problem(name: str) -> str:
    """Why a variable of this name may not be a secret; "" if it may."""
    if name.upper().startswith(("RAY_", "__RAY_", OUR_PREFIX)) or name.upper() in OWNED_ENVIRONMENT:
        return "is set by the cluster or for every job"
    effect = next((effect for effect, names in FORBIDDEN_NAMES.items() if names.fullmatch(name)), "")
    return effect and f"decides {effect}, and is never passed on as a secret"


def secret_findings(spec: JobSpec) -> Iterator[Finding]:
    """Findings about the names of the secrets of a JobSpec."""
    for name in spec.secrets:
        name_problem = forbidden_name_problem(name)
        if not ENVIRONMENT_NAME.fullmatch(name):
            yield _secret_finding(name, "is not the name of an environment variable", "give names only, no values")
        elif name_problem:
            yield _secret_finding(name, name_problem, "remove it")
        elif name in requested_variables(spec):
            yield _secret_finding(name, "is also in env_vars", "remove it from env_vars")


def _secret_finding(name: str, problem: str, remedy: str) -> Finding:
    return Finding(f"secrets: {name}", problem, remedy, key=f"secrets.{name}")


def secret_value_findings(names: Sequence[str], values: Mapping[str, object]) -> list[Finding]:
    """Findings about secrets that the inventory lacks, or whose values are empty or could not be masked in logs.

    values: job_secrets of the inventory.
    """
    findings = []
    for name in names:
        value = values.get(name)
        if name not in values:
            remedy = "add its value to job_secrets, from a vault or with lookup('env', …)"
            findings.append(_secret_finding(name, "is not allowed by the inventory", remedy))
        elif not value:
            remedy = f"open the vault that has it, or export {name} if job_secrets looks it up in the environment"
            findings.append(_secret_finding(name, "has no value", remedy))
        elif not isinstance(value, str) or not redact.maskable_lines(value):
            problem = f"is not a string of at least {redact.MIN_SECRET_CHARS} characters, or has no line of "
            problem += f"{redact.MIN_PART_CHARS}, and could not be masked in logs"
            findings.append(_secret_finding(name, problem, "move it to env_vars if it is not secret"))
    return findings
