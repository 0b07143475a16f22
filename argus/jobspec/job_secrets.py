# SPDX-License-Identifier: Apache-2.0
"""Checks the secrets that a job names: their names, and the values that the inventory has for them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ..common.findings import Finding
from ..hooks import redact
from .environment import ENVIRONMENT_NAME, OUR_PREFIX, OWNED_ENVIRONMENT, requested_variables
from .spec import JobSpec

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
        elif not isinstance(value, str) or not redact.lines_of(value):
            problem = f"is not a string of at least {redact.MIN_SECRET_CHARS} characters, or has no line of "
            problem += f"{redact.MIN_PART_CHARS}, and could not be masked in logs"
            findings.append(_secret_finding(name, problem, "move it to env_vars if it is not secret"))
    return findings
