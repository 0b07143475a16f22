# SPDX-License-Identifier: Apache-2.0
"""Runs all checks on one worker, and defines those of its packages and of the space for checkpoints."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from operator import mul
from pathlib import Path
from typing import Any, NamedTuple

from ..common.findings import WARNING, Finding, about
from ..common.text import one_line, size_text
from ..io.reading import UnreadableError, read_text
from .common import DTYPE_BYTES, MAX_VERSION_CHARS, CheckRequest, Facts, as_list, error_text
from .dataset import dataset_findings
from .model import model_findings
from .paths import path_findings
from .prompts import prompt_findings
from .reward import reward_findings

# Checks of the packages that workers have against those that verl requires.

# The packages that verl's rollouts of these names call, and the extra of verl that declares them.
ENGINES = {"vllm": ("vllm", "vllm"), "sglang": ("sglang", "sglang"), "trtllm": ("tensorrt-llm", "trtllm")}
# verl 0.9 imports it for PPO and GRPO, and declares it in no extra or in that of all backends: verl's published image
# may lack it, or have one that is too old.
QUEUE, BACKENDS = "transferqueue", "verl-core"
WITHOUT_QUEUE = "install it in the image, as images/cuda does, set trainer.use_v1=False, or set accept: [requirements]"
KNOWN_TO_WORK = "no action is needed if this image is known to work"
MAX_NAMED_CONFLICTS = 3
REQUIRED_VERL, REQUIRED_VERL_BYTES = "REQUIRED_VERL.txt", 1 << 16
# With an older version, Ray silently ignores breakpoints (ray/util/debugpy.py).
DEBUGPY = (1, 8)


def debugger_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    if request.debugger != "post_mortem":
        return []
    version = re.findall(r"\d+", installed_version(request, "debugpy") or "")
    if tuple(map(int, version[:2])) >= DEBUGPY:
        return []
    remedy = "add debugpy 1.8 or newer to the image, or set debugger: legacy"
    return [about("debugger", "the workers do not have debugpy 1.8 or newer", remedy)]


def requirement_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    """Compares verl's requirements with the installed packages.

    A snapshot replaces verl, not its dependencies. Requirements of every job count. Of the extra of the rollout's
    engine, only the engine itself and TransferQueue count: the other pins there only show what verl's authors tested
    with.
    """
    manifest = snapshot_manifest(request.code_path)
    if not manifest:
        return []  # the head checks whether it is a snapshot
    verl = f"verl {manifest.get('verl_version')}"
    engine, extra = ENGINES.get(request.setting("actor_rollout_ref.rollout.name"), ("", ""))
    severity = request.severity_of("requirements")
    image_remedy = "use an image built for this verl, use another snapshot, or set accept: [requirements]"
    unneeded = unneeded_packages(request, facts)
    # trainer/main_ppo.py:main
    is_v1 = request.verl_at_least((0, 9)) and request.setting("trainer.use_v1", True) is not False
    imported = [QUEUE] if is_v1 and not request.is_sft else []
    extras = [extra, BACKENDS] if imported else [extra]
    imported += [engine] if engine else []
    facts.versions = {}
    findings: list[Finding] = []
    tested: list[str] = []
    for requirement, always in applicable_requirements(manifest, extras):
        name = requirement.name.lower()
        version = facts.versions[name] = installed_version(request, name)
        declared = f"{requirement.name}{requirement.specifier}"
        remedy = WITHOUT_QUEUE if name == QUEUE else image_remedy
        if version is not None and requirement.specifier.contains(version, prereleases=True):
            continue
        if not always and name not in imported:
            tested += [f"{declared} (the workers have {version})"] if version else []
        elif version is not None:
            is_newer = not always and name == engine and reaches(requirement, version)
            problem = f"{verl} requires {declared}, but the workers have {version}"
            findings.append(about("code_path", problem, remedy, WARNING if is_newer else severity))
        elif name not in unneeded:
            problem = f"{verl} requires {declared}, which the workers do not have"
            findings.append(about("code_path", problem, remedy, severity))
    if QUEUE in imported and QUEUE not in facts.versions and installed_version(request, QUEUE) is None:
        problem = f"{verl} imports TransferQueue without declaring it, and the workers do not have it"
        findings.append(about("code_path", problem, WITHOUT_QUEUE, severity))
    if tested:
        problem = f"{verl} is tested for {extra or BACKENDS} with {', '.join(tested)}"
        findings.append(about("code_path", problem, KNOWN_TO_WORK, WARNING))
    if conflicts := unmet_requirements(request, imported):
        more = f" and {len(conflicts) - MAX_NAMED_CONFLICTS} more" if len(conflicts) > MAX_NAMED_CONFLICTS else ""
        problem = f"packages of the workers do not fit together: {', '.join(conflicts[:MAX_NAMED_CONFLICTS])}{more}"
        findings.append(about("code_path", problem, f"{KNOWN_TO_WORK}; `pip check` there names all", WARNING))
    return findings


def snapshot_manifest(code_path: str) -> dict[str, Any]:
    """The manifest of a snapshot; empty without one."""
    try:
        manifest = json.loads(Path(code_path, "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def parse_requirements(lines: Iterable[object]) -> list[Any]:
    """Parses requirements; malformed lines are skipped."""
    from packaging.requirements import InvalidRequirement, Requirement

    requirements = []
    for line in lines:
        with contextlib.suppress(InvalidRequirement):
            requirements.append(Requirement(str(line)))
    return requirements


def applicable_requirements(manifest: dict[str, Any], extras: list[str]) -> Iterable[tuple[Any, bool]]:
    """The requirements that apply here, and whether they are those of every job rather than of an extra.

    verl's extras name each other, as in verl[verl-core].
    """
    requirements = parse_requirements(manifest.get("requirements") or ())
    requirements_by_text: dict[str, tuple[Any, bool]] = {}
    names = ["", *filter(None, extras)]
    for extra in names:
        for requirement in requirements:
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            if requirement.name == "verl":
                names += sorted(requirement.extras.difference(names))
            requirements_by_text.setdefault(f"{requirement.name}{requirement.specifier}", (requirement, not extra))
    requirements_by_text.pop("verl", None)
    return requirements_by_text.values()


def unmet_requirements(request: CheckRequest, names: Iterable[str]) -> list[str]:
    """The conflicts that `pip check` would report for these packages and their dependencies."""
    from packaging.utils import canonicalize_name

    @functools.cache
    def package(name: str) -> tuple[str | None, list[Any]]:
        installed = distribution(request, name)
        return (installed.version, parse_requirements(installed.requires or ())) if installed else (None, [])

    problems = []
    pending = [(name, "") for name in names]
    for name, extra in pending:
        for requirement in package(name)[1]:
            # Packages may have malformed markers and versions.
            with contextlib.suppress(ValueError):
                if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                    continue
                needed = canonicalize_name(requirement.name)
                version = package(needed)[0]
                pending += [pair for nested in ("", *requirement.extras) if (pair := (needed, nested)) not in pending]
                if version is None or not requirement.specifier.contains(version, prereleases=True):
                    declared = f"{needed}{requirement.specifier}"
                    problems.append(f"{name} requires {declared} (the workers have {version or 'none'})")
    return list(dict.fromkeys(problems))


def required_verl_findings(code_path: str, module: str) -> list[Finding]:
    """Whether a recipe is pinned to another verl: the README of verl's repository of recipes.

    Recipes that follow verl's main branch name the commit with which they were tried last, which few snapshots have.
    """
    directory = Path(code_path, *module.split(".")[:-1])
    try:
        lines = read_text(directory / REQUIRED_VERL, REQUIRED_VERL_BYTES).splitlines()
    except (OSError, UnreadableError):
        return []
    pins = {key.strip(): value.strip() for key, _equals, value in (line.partition("=") for line in lines)}
    manifest = snapshot_manifest(code_path)
    version, commit = str(manifest.get("verl_version")), str(manifest.get("commit") or "")
    release, pinned = pins.get("TAG", "").removeprefix("v"), pins.get("COMMIT", "")
    fits = [pin == actual for pin, actual in ((release, version), (pinned, commit)) if pin and actual]
    if not pins.get("MODE", "").startswith("pinned") or not fits or any(fits):
        return []
    names = one_line(f"verl {release}" if release else f"commit {pinned}", MAX_VERSION_CHARS)
    text = f"{module} is made for {names} ({REQUIRED_VERL}), but the snapshot is verl {version} {commit[:12]}".rstrip()
    return [about("code_path", text, "use a snapshot of that verl; no action is needed if it runs with this", WARNING)]


def unneeded_packages(request: CheckRequest, facts: Facts) -> set[str]:
    """Packages that verl requires for every job, but that this job never imports.

    Read in verl 0.9.0 and 0.9.1. Every job imports the other packages that they require, dill by way of datasets.
    """
    loggers = set(as_list(request.setting("trainer.logger")))
    sources = () if request.reward_file else facts.data_sources or ()
    needed = {
        "wandb": bool({"wandb", "tracking"} & loggers),  # utils/tracking.py: Tracking
        "tensorboard": "tensorboard" in loggers,  # utils/tracking.py: Tracking
        # utils/reward_score/prime_math/__init__.py, for data sources of these names.
        "pylatexenc": any(source.startswith("numina") for source in sources),
        # Nothing imports it; Megatron compiles a helper with it.
        "pybind11": request.setting("actor_rollout_ref.actor.strategy") == "megatron",
    }
    return {name for name, is_needed in needed.items() if not is_needed}


def installed_version(request: CheckRequest, name: str) -> str | None:
    package = distribution(request, name)
    return package.version if package else None


def distribution(request: CheckRequest, name: str) -> metadata.Distribution | None:
    """The package that the job would import; the job's PYTHONPATH goes first."""
    paths = str(request.environment.get("PYTHONPATH", "")).split(":")
    return next(iter(metadata.distributions(name=name, path=[*filter(None, paths), *sys.path])), None)


def reaches(requirement: Any, version: str) -> bool:
    """Whether a version is at least the pinned one, ignoring its last part.

    verl 0.9.1 pins vllm==0.24.0, and its rollout ran with 0.27.1; its code asks for 0.18 or newer.
    """
    from packaging.version import Version

    return all(
        pin.operator == "==" and Version(version).release[:2] >= Version(pin.version).release[:2]
        for pin in requirement.specifier
    )


# Whether the checkpoints of the whole job fit on the shared root.

ALMOST_FULL = 0.8
# The trainer mode without samples in flight during a save.
SYNC = "sync"
QUEUED_TOKEN_BYTES = 120
RESUMED_STEP = re.compile(r"global_step_(?P<step>[0-9]{1,15})")


class TrainedModel(NamedTuple):
    """A model that the job trains and saves: the keys of its sections, and of the number of kept checkpoints."""

    name: str
    model: str
    engine: str
    trainer: str
    keep: str


MODEL = TrainedModel("model", "model", "engine", "", "trainer.max_ckpt_to_keep")
ACTOR = TrainedModel(
    "actor",
    "actor_rollout_ref.model",
    "actor_rollout_ref.actor.fsdp_config",
    "actor_rollout_ref.actor.",
    "trainer.max_actor_ckpt_to_keep",
)
CRITIC = TrainedModel("critic", "critic.model", "critic.fsdp", "critic.", "trainer.max_critic_ckpt_to_keep")


def space_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    status = os.statvfs(request.shared_root)
    free = facts.free_bytes = status.f_bavail * status.f_frsize
    if request.config is None:
        return []
    findings, saved = step_findings(request, facts)
    if saved is None:
        return findings
    parts = [MODEL] if request.is_sft else [ACTOR, CRITIC] if request.has_critic else [ACTOR]
    kept = [checkpoints_kept(request, part, saved) for part in parts]
    sizes = [checkpoint_bytes(request, part, facts) for part in parts]
    if not all(sizes):
        return findings
    queue = queue_bytes(request)
    facts.checkpoint_bytes, facts.checkpoints_kept = sum(sizes) + queue, max(kept)
    # verl removes the states of TransferQueue with no checkpoint.
    needed = facts.checkpoint_space = sum(map(mul, kept, sizes)) + saved * queue
    if not needed or needed < ALMOST_FULL * free:
        return findings
    terms = "; ".join(
        f"{part.name}: {count} of {saved} at a time, {size_text(size)} each"
        for part, count, size in zip(parts, kept, sizes, strict=True)
    )
    text = f"checkpoints need about {size_text(needed)} ({terms}), but {request.shared_root} has {size_text(free)} free"
    remedy = f"raise trainer.save_freq, lower {' and '.join(part.keep for part in parts)}, or free space"
    if needed <= free:
        return [*findings, about("shared_root", text, remedy, WARNING)]
    # Other strategies than FSDP write other files, of a size that was never measured here.
    strategies = [str(request.setting(f"{part.trainer or 'engine.'}strategy", "fsdp")) for part in parts]
    is_measured = all(strategy.startswith("fsdp") for strategy in strategies)
    severity = request.severity_of("space") if is_measured else WARNING
    return [*findings, about("shared_root", text, f"{remedy}, or set accept: [space]", severity)]


def queue_bytes(request: CheckRequest) -> int:
    """The size of the state of TransferQueue in a checkpoint: trainer/ppo/v1/trainer_base.py: _save_checkpoint.

    Two real checkpoints with a whole batch in flight had 98 and 82 % of it.
    """
    if request.is_sft or request.setting("trainer.v1.trainer_mode", SYNC) == SYNC:
        return 0
    samples = request.number("data.train_batch_size") * request.number("actor_rollout_ref.rollout.n", 1)
    return samples * request.max_sequence_length * QUEUED_TOKEN_BYTES


def step_findings(request: CheckRequest, facts: Facts) -> tuple[list[Finding], int | None]:
    """Problems with the steps of the job, and how many checkpoints it writes; None if that is unknown."""
    rows, batch = facts.train_rows, request.number("data.train_batch_size")
    epochs, limit = request.setting("trainer.total_epochs", 1), request.setting("trainer.total_training_steps")
    # The checks of numbers report values of the wrong type.
    if not rows or not batch or not isinstance(epochs, int) or not isinstance(limit or 0, int):
        return [], None
    steps_per_epoch = rows // batch
    steps = steps_per_epoch * epochs
    findings: list[Finding] = []
    is_complete = True
    if limit is not None and limit > steps > 0:
        # trainer/sft_trainer_ray.py and trainer/ppo/v1/trainer_base.py: fit. The loop ends with the epochs, and only
        # the step whose number is total_training_steps counts as the last.
        is_complete = False
        problem = (
            f"trainer.total_training_steps={limit}, but trainer.total_epochs={epochs} ends the job after {steps} steps "
            f"({rows} rows in batches of {batch})"
        )
        remedy = "raise trainer.total_epochs; otherwise the last steps are not saved"
        findings.append(about("trainer_overrides", problem, remedy, WARNING))
    elif limit is not None and steps:
        steps = limit
    facts.steps = steps
    findings += resume_findings(request, steps, steps_per_epoch, epochs)
    save_freq = request.setting("trainer.save_freq", -1)
    save_freq = steps_per_epoch if save_freq == "after_each_epoch" else save_freq
    # SFT saves its last step even with save_freq=-1, RL does not.
    is_last_saved = is_complete and (save_freq > 0 or request.is_sft)
    saved = steps // save_freq if save_freq > 0 else 0
    if steps and is_last_saved and (save_freq <= 0 or steps % save_freq):
        saved += 1
    return findings, saved


def resume_findings(request: CheckRequest, steps: int, steps_per_epoch: int, epochs: int) -> Iterator[Finding]:
    """Findings about the steps left to train after the checkpoint that the job resumes from."""
    match = RESUMED_STEP.search(str(request.setting("trainer.resume_from_path") or ""))
    step = int(match["step"]) if match else 0
    if not match or not steps:
        return
    if step >= steps:
        problem = f"its checkpoint is of step {step}, and the job has {steps} steps: nothing is left to train"
        yield about("resume_from", problem, "raise trainer.total_training_steps or trainer.total_epochs")
    # trainer/sft_trainer_ray.py: fit. At the end of an epoch, the state of the data loader has no rows left for the
    # next one. Of the last steps, only the very last is saved.
    elif request.is_sft and step and step % steps_per_epoch == 0 and steps > (last := steps_per_epoch * (epochs - 1)):
        problem = (
            f"its checkpoint of step {step} is the end of an epoch: verl's SFT trainer skips the next one, ends at "
            f"step {last} of {steps}, and does not save its last steps"
        )
        remedy = f"set trainer.total_epochs={epochs + 1} and trainer.total_training_steps={steps}"
        yield about("resume_from", problem, remedy, WARNING)


def checkpoints_kept(request: CheckRequest, part: TrainedModel, saved: int) -> int:
    """The number of checkpoints that exist at the same time: utils/checkpoint/checkpoint_manager.py."""
    limit = 1 if request.setting("trainer.remove_previous_ckpt_in_save", False) else request.setting(part.keep)
    if not isinstance(limit, int) or limit <= 0:
        return saved
    # With a limit of 1, the old one is removed after the new one is written; with more, before that.
    return min(saved, max(limit, 2))


def checkpoint_bytes(request: CheckRequest, part: TrainedModel, facts: Facts) -> int:
    """The size of a checkpoint: utils/checkpoint/fsdp_checkpoint_manager.py: save_checkpoint. 0: unknown.

    Compared with real checkpoints of a model of 124,096 parameters it is 97 % (actor), 96 % (with hf_model) and 116 %
    (critic, which has no output layer). What is missing does not grow with the model.
    """
    parameters = facts.critic_parameters if part == CRITIC else facts.parameters
    contents = request.setting(f"{part.trainer}checkpoint.save_contents", ["model", "optimizer", "extra"])
    # Training is in fp32 by default (trainer/config/engine/fsdp.yaml), and so are Adam's two moments.
    item = DTYPE_BYTES.get(request.setting(f"{part.engine}.model_dtype", "fp32"), 4)
    lora_rank = request.setting(f"{part.model}.lora_rank") or request.setting(f"{part.model}.lora.rank") or 0
    has_lora = lora_rank > 0
    items = 0
    if "model" in contents and not (has_lora and request.setting(f"{part.trainer}checkpoint.save_lora_only", False)):
        items += 1
    if "optimizer" in contents and not has_lora:
        items += 2
    # The complete model once more, in the type of training.
    if "hf_model" in contents:
        items += 1
    return (parameters or 0) * item * items


# All checks that run on one worker, with the packages and devices that the job will have.

Check = Callable[[CheckRequest, Facts], Iterable[Finding]]
# Each check with the key or subject that it is about. The order matters: later checks read facts of earlier ones.
CHECKS: tuple[tuple[str, Check], ...] = (
    ("paths", path_findings),
    ("dataset", dataset_findings),
    ("model", model_findings),
    ("prompts", prompt_findings),
    ("reward_fn_path", reward_findings),
    ("code_path", requirement_findings),
    ("debugger", debugger_findings),
    ("shared_root", space_findings),
)


def check_worker(request: CheckRequest) -> tuple[list[Finding], Facts]:
    """All problems with dataset, model, reward function, packages and space, and the facts about them."""
    findings: list[Finding] = []
    facts = Facts()
    for key, check in CHECKS:
        started = time.monotonic()
        try:
            findings += check(request, facts)
        except Exception as error:
            # An unexpected file format must not stop a good job.
            problem = f"could not be checked: {type(error).__name__}: {error_text(error)}"
            findings.append(about(key, problem, "report this error; the job itself may be fine", WARNING))
        facts.seconds[key] = round(time.monotonic() - started, 3)
    return findings, facts
