# SPDX-License-Identifier: Apache-2.0
"""Checks the environment variables of a job, and the parts of Ray's runtime environment that its JobSpec sets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..archive.archive import JOB_VARIABLE
from ..common.findings import Finding, about
from ..common.shared_root import HF_HOME
from ..common.text import nearest
from ..hooks import redact
from ..queue.attempts import METRICS_VARIABLE
from .secret_forms import form_of_secret
from .spec import JobSpec

ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Variables that every job has, with the reason why a JobSpec cannot set them.
OWNED_ENVIRONMENT = {
    METRICS_VARIABLE: "metrics belong in the archive",
    "HF_HOME": f"it is {HF_HOME}/ under the shared root",
    JOB_VARIABLE: "it marks the job's processes",
    redact.ARCHIVE: "it is the path of the job's archive",
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
    return {"RAY_ADDRESS": "auto", "HF_HOME": f"{shared_root}/{HF_HOME}"}


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
    yield from form_findings(
        RUNTIME_ENV, {name: value for name, value in env.items() if name not in OWNED_PARTS}, ALLOWED_PARTS
    )
    if isinstance(config := env.get("config"), Mapping):
        yield from form_findings(f"{RUNTIME_ENV}.config", config, CONFIG_KEYS)
    if isinstance(variables := env.get("env_vars"), Mapping):
        yield from variable_findings(f"{RUNTIME_ENV}.env_vars", variables, spec.shared_root)


def form_findings(where: str, values: Mapping[Any, object], forms: Mapping[str, Form]) -> Iterator[Finding]:
    """Findings about keys that have no form, and about values that do not have it. where: the key of the mapping."""
    for name, value in values.items():
        if name not in forms:
            hint = nearest(str(name), forms) or f"known keys: {', '.join(forms)}"
            yield about(f"{where}.{name}", "is not known", hint)
        elif not forms[name][0](value):
            yield about(f"{where}.{name}", f"is {value!r}", forms[name][1])
