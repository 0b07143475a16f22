# SPDX-License-Identifier: Apache-2.0
"""Checks the paths of a job and the network of a node.

Every node sees the files that the head sees, can write where jobs write, and has the interfaces and adapters that
environment variables name. Paths in overrides must be under the shared root.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from ..common import shared_root as layout
from ..common.findings import ERROR, WARNING, Finding, about
from ..common.text import one_line
from .request import CheckRequest, Configuration, Facts, as_list, error_text, flatten

SAME_FILE_SYSTEM = "check that all nodes mount the same file system"
# The settings with paths, and for each the directory of the shared root where such files belong.
HOME_DIRS = {
    "data.train_files": layout.DATASETS_DIR,
    "data.val_files": layout.DATASETS_DIR,
    "data.custom_cls.path": layout.USER_CODE_DIR,
    "actor_rollout_ref.model.path": layout.MODELS_DIR,
    "actor_rollout_ref.model.tokenizer_path": layout.MODELS_DIR,
    "actor_rollout_ref.model.lora_adapter_path": layout.MODELS_DIR,
    "critic.model.path": layout.MODELS_DIR,
    "critic.model.tokenizer_path": layout.MODELS_DIR,
    "model.path": layout.MODELS_DIR,
    "model.tokenizer_path": layout.MODELS_DIR,
    "reward.reward_model.model_path": layout.MODELS_DIR,
    "trainer.resume_from_path": layout.JOBS_DIR,
}
# The ends of the names of settings with paths that a job writes.
RESULT_SUFFIXES = ("save_path", "dump_path", "output_path")
# The settings with the text of a chat template: workers/config/model.py:HFModelConfig.__post_init__
TEMPLATE_KEYS = ("actor_rollout_ref.model.custom_chat_template", "model.custom_chat_template")
ADAPTERS_DIR = Path("/sys/class/infiniband")
GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd")
GLOO_KEY = "GLOO_SOCKET_IFNAME"
NETWORK_REMEDY = "remove it: preflight names what each node has, for ray_node_env; or set it to what all nodes have"


def check_node(request: CheckRequest) -> list[Finding]:
    """Findings about the shared root and the network of this node. Runs on every worker."""
    root = Path(request.shared_root)
    jobs = root / "jobs"
    if not jobs.is_dir():
        remedy = "mount the shared root at this path on every node, then run cluster_up.yml"
        return [about("shared_root", f"{jobs} does not exist", remedy)]
    findings = [*write_findings(jobs), *network_findings(request.environment)]
    for name, size in request.files.items():
        findings += file_findings(jobspec_key_of(request, Path(name)), Path(name), size, root.resolve())
    return findings


def write_findings(directory: Path) -> list[Finding]:
    test = directory / f".write-test-{uuid.uuid4().hex}"
    try:
        with test.open("xb") as file:
            file.write(b"x")
        test.unlink()
    except OSError as error:
        remedy = f"give user ID {os.geteuid()} write permission, and check that the file system is not full"
        return [about("shared_root", f"{directory} is not writable: {error.strerror or error}", remedy)]
    return []


def jobspec_key_of(request: CheckRequest, path: Path) -> str:
    """The key of the JobSpec that a file belongs to."""
    if request.reward_file is not None and Path(request.reward_file) == path:
        return "reward_fn_path"
    homes = (("model", request.model), ("dataset", request.dataset), ("code_path", request.code_path))
    return next((key for key, home in homes if path.is_relative_to(home)), "shared_root")


def file_findings(key: str, path: Path, size: int | None, root: Path) -> list[Finding]:
    """Findings about a path that this node cannot read, or sees otherwise than the head. size: there; None for any."""
    try:
        real = path.resolve()
        if not real.is_relative_to(root):
            remedy = f"copy it there: other nodes may not have {real}"
            return [about(key, f"{path} leads out of {layout.shared_root_text(str(root))}, to {real}", remedy)]
        status = path.stat()
        if path.is_file():
            with path.open("rb"):
                pass
    except FileNotFoundError:
        problem = f"{path} is a link to {path.resolve()}, which does not exist" if path.is_symlink() else None
        return [about(key, problem or f"{path} does not exist", SAME_FILE_SYSTEM)]
    except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError before Python 3.13
        remedy = f"give user ID {os.geteuid()} read permission, and check the file system"
        return [about(key, f"{path} cannot be read: {error_text(error)}", remedy)]
    if size is not None and status.st_size != size:
        problem = f"{path} has {status.st_size} bytes, but {size} bytes on the head"
        return [about(key, problem, f"{SAME_FILE_SYSTEM}, and that nothing is writing to the file")]
    return []


def named_files(config: Configuration, shared_root: str) -> dict[str, str]:
    """The paths of users' files, by the settings that name them: no data, no models, no results of jobs."""
    paths: dict[str, str] = {}
    for key, value in flatten(config.values, enabled_only=False):
        is_code = HOME_DIRS.get(key, layout.USER_CODE_DIR) == layout.USER_CODE_DIR
        is_input = is_code and key.endswith("path") and not key.endswith(RESULT_SUFFIXES)
        # Interpolations make several settings have one path; the first counts.
        if is_input and isinstance(value, str) and value.startswith("/") and value not in paths.values():
            paths[key] = value
    return {
        key: path for key, path in paths.items() if not layout.is_under_root(path, f"{shared_root}/{layout.JOBS_DIR}")
    }


def path_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    """Findings about settings whose paths this worker cannot read, or whose paths are outside the shared root."""
    if request.config is None:
        return []
    root = Path(request.shared_root).resolve()
    files = named_files(request.config, request.shared_root)
    paths = [(key, path) for key in HOME_DIRS if key not in files for path in as_list(request.setting(key))]
    findings = []
    for key, path in [*paths, *files.items()]:
        if key.startswith("critic.") and not request.has_critic:
            continue
        if not isinstance(path, str) or not path.startswith("/"):
            continue
        if layout.is_under_root(path, request.shared_root):
            is_of_jobspec = path == request.reward_file
            for finding in file_findings(key, Path(path), None, root) if key in files and not is_of_jobspec else []:
                is_missing = finding.remedy == SAME_FILE_SYSTEM
                remedy = f"correct it, or {layout.copy_remedy(layout.USER_CODE_DIR)}"
                findings.append(replace(finding, remedy=remedy) if is_missing else finding)
            continue
        problem, severity = layout.outside_root_text(path, request.shared_root), ERROR
        if Path(path).exists():
            problem, severity = f"{problem}: this worker has it, but others may not have the same", WARNING
        remedy = layout.copy_remedy(HOME_DIRS.get(key, layout.USER_CODE_DIR))
        findings.append(Finding(key, problem, remedy, severity, key=key))
    for key in TEMPLATE_KEYS:
        if str(request.setting(key, "")).startswith("/"):
            problem = "is a path, but verl takes it for the text of a template"
            findings.append(about(key, problem, "give the text, or put chat_template.jinja beside the tokenizer"))
    return findings


def network_findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Findings about variables whose interfaces or adapters this node does not have."""
    interfaces = [name for _index, name in socket.if_nameindex()]
    adapters = [path.name for path in ADAPTERS_DIR.iterdir()] if ADAPTERS_DIR.is_dir() else []
    # RCCL reads these variables as well. Nothing does without GPUs.
    severity = ERROR if any(map(os.path.exists, GPU_DEVICES)) else WARNING
    for name, present, effect, severe in (
        (GLOO_KEY, interfaces, "gloo does not start; it knows whole names only, with commas, no ^ and no =", ERROR),
        ("NCCL_SOCKET_IFNAME", interfaces, "NCCL does not start", severity),
        ("NCCL_IB_HCA", adapters, "NCCL uses no InfiniBand and no RoCE there", WARNING),
    ):
        value = environment.get(name, "")
        # torch/csrc/distributed/c10d/ProcessGroupGloo.cpp: every one has to exist
        has_all = {*present}.issuperset(filter(None, value.split(",")))
        is_known = has_all if name == GLOO_KEY else selects_any(value, present)
        # gloo and NCCL treat a single character as no name.
        if len(value) > 1 and not is_known:
            problem = f"is {value}, but the node has {one_line(', '.join(sorted(present)), 200) or 'none'}: {effect}"
            yield about(f"env_vars.{name}", problem, NETWORK_REMEDY, severe)


def selects_any(value: str, present: Iterable[str]) -> bool:
    """Whether an NCCL variable selects any of a node's names: by prefixes, or after = by names; ^ excludes them."""
    text = value.removeprefix("^")
    parts = tuple(part.partition(":")[0] for part in text.removeprefix("=").split(",") if part)
    matched = [name in parts if text.startswith("=") else name.startswith(parts) for name in present]
    return not all(matched) if value.startswith("^") else any(matched)
