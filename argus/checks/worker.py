# SPDX-License-Identifier: GPL-3.0-or-later
"""All checks that run on one worker, and those of its packages and of the space for checkpoints."""

from __future__ import annotations

import contextlib
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
from ..common.text import size_text
from .common import ITEM_BYTES, CheckRequest, Facts, error_text, listed
from .dataset import dataset_findings
from .model import model_findings
from .paths import path_findings
from .prompts import prompt_findings
from .reward import reward_findings

# Checks of the packages that workers have against those that verl requires.

# The packages that verl's rollouts of these names call, and the extra of verl that declares them.
ENGINES = {"vllm": ("vllm", "vllm"), "sglang": ("sglang", "sglang"), "trtllm": ("tensorrt-llm", "trtllm")}
# verl 0.9 imports it for PPO and GRPO, and does not declare it: verl's published image may lack it.
QUEUE = "transferqueue"
WITHOUT_QUEUE = "add it to the image, as images/cuda does, set trainer.use_v1=False, or set accept: [requirements]"
# With an older version, Ray silently ignores breakpoints (ray/util/debugpy.py).
DEBUGPY = (1, 8)


def debugger_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    if request.debugger != "post_mortem":
        return []
    version = re.findall(r"\d+", installed_version(request, "debugpy") or "")
    if tuple(map(int, version[:2])) >= DEBUGPY:
        return []
    todo = "add debugpy 1.8 or newer to the image, or set debugger: legacy"
    return [about("debugger", "the workers do not have debugpy 1.8 or newer", todo)]


def requirement_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    """What verl requires against what is installed here.

    A snapshot replaces verl, not its dependencies. Requirements of every job count. Of the extra of the rollout's
    engine, only the engine itself counts: the other pins there only show what verl's authors tested with.
    """
    try:
        manifest = json.loads(Path(request.code_path, "manifest.json").read_text(encoding="utf-8"))
        lines = [str(line) for line in manifest.get("requirements") or ()]
    except (OSError, ValueError, AttributeError):
        return []  # the head checks whether it is a snapshot
    verl = f"verl {manifest.get('verl_version')}"
    engine, extra = ENGINES.get(request.setting("actor_rollout_ref.rollout.name"), ("", ""))
    severity = request.severity_of("requirements")
    todo = "use an image built for this verl, use another snapshot, or set accept: [requirements]"
    unneeded = unneeded_packages(request, facts)
    facts.versions = {}
    found: list[Finding] = []
    tested: list[str] = []
    for requirement, always in applicable(lines, extra):
        name = requirement.name
        version = facts.versions[name] = installed_version(request, name)
        declared = f"{name}{requirement.specifier}"
        if version is not None and requirement.specifier.contains(version, prereleases=True):
            continue
        if not always and name != engine:
            tested += [f"{declared} (the workers have {version})"] if version else []
        elif version is not None:
            close = not always and same_minor(requirement, version)
            what = f"{verl} requires {declared}, but the workers have {version}"
            found.append(about("code_path", what, todo, WARNING if close else severity))
        elif name not in unneeded:
            found.append(
                about("code_path", f"{verl} requires {declared}, which the workers do not have", todo, severity)
            )
    # trainer/main_ppo.py:main
    uses_queue = request.is_since((0, 9)) and request.setting("trainer.use_v1", True) is not False
    if not request.is_sft and uses_queue and installed_version(request, QUEUE) is None:
        what = f"{verl} imports TransferQueue without declaring it, and the workers do not have it"
        found.append(about("code_path", what, WITHOUT_QUEUE, severity))
    if tested:
        what = f"{verl} is tested for {extra} with {', '.join(tested)}"
        found.append(about("code_path", what, "no action is needed if this image is known to work", WARNING))
    return found


def applicable(lines: list[str], extra: str) -> Iterator[tuple[Any, bool]]:
    """The requirements that apply here, and whether they are those of every job rather than of the extra."""
    from packaging.requirements import InvalidRequirement, Requirement

    for line in lines:
        with contextlib.suppress(InvalidRequirement):
            requirement = Requirement(line)
            marker = requirement.marker
            always = marker is None or marker.evaluate({"extra": ""})
            if marker is None or always or (extra and marker.evaluate({"extra": extra})):
                yield requirement, always


def unneeded_packages(request: CheckRequest, facts: Facts) -> set[str]:
    """Packages that verl requires for every job, but that this job never imports.

    Read in verl 0.9.0 and 0.9.1. Every job imports the other packages that they require, dill by way of datasets.
    """
    loggers = set(listed(request.setting("trainer.logger")))
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
    """The version that the job would import. The job's own PYTHONPATH goes first."""
    own = str(request.environment.get("PYTHONPATH", "")).split(":")
    for distribution in metadata.distributions(name=name, path=[*filter(None, own), *sys.path]):
        return distribution.version
    return None


def same_minor(requirement: Any, version: str) -> bool:
    """Whether a version differs from a pin only in its last part, as 0.24.1 from vllm==0.24.0."""
    from packaging.version import Version

    return all(
        each.operator == "==" and Version(each.version).release[:2] == Version(version).release[:2]
        for each in requirement.specifier
    )


# Whether the checkpoints of the whole job fit on the shared root.

ALMOST_FULL = 0.8
RESUMED_STEP = re.compile(r"global_step_(?P<step>[0-9]{1,15})")


class Part(NamedTuple):
    """A part of the job that writes checkpoints: the keys of its sections, and of the number that is kept."""

    name: str
    model: str
    engine: str
    trainer: str
    keep: str


MODEL = Part("model", "model", "engine", "", "trainer.max_ckpt_to_keep")
ACTOR = Part(
    "actor",
    "actor_rollout_ref.model",
    "actor_rollout_ref.actor.fsdp_config",
    "actor_rollout_ref.actor.",
    "trainer.max_actor_ckpt_to_keep",
)
CRITIC = Part("critic", "critic.model", "critic.fsdp", "critic.", "trainer.max_critic_ckpt_to_keep")


def space_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    status = os.statvfs(request.shared_root)
    free = facts.free_bytes = status.f_bavail * status.f_frsize
    if request.config is None:
        return []
    found, saved = step_findings(request, facts)
    if saved is None:
        return found
    parts = [MODEL] if request.is_sft else [ACTOR, CRITIC] if request.has_critic else [ACTOR]
    kept = [checkpoints_kept(request, part, saved) for part in parts]
    sizes = [checkpoint_bytes(request, part, facts) for part in parts]
    if not all(sizes):
        return found
    facts.checkpoint_bytes, facts.checkpoints_kept = sum(sizes), max(kept)
    needed = facts.checkpoint_space = sum(map(mul, kept, sizes))
    if not needed or needed < ALMOST_FULL * free:
        return found
    terms = "; ".join(
        f"{part.name}: {count} of {saved} at a time, {size_text(size)} each"
        for part, count, size in zip(parts, kept, sizes, strict=True)
    )
    what = f"checkpoints need about {size_text(needed)} ({terms}), but {request.shared_root} has {size_text(free)} free"
    todo = f"raise trainer.save_freq, lower {' and '.join(part.keep for part in parts)}, or free space"
    if needed <= free:
        return [*found, about("shared_root", what, todo, WARNING)]
    # Other strategies than FSDP write other files, of a size that was never measured here.
    strategies = [str(request.setting(f"{part.trainer or 'engine.'}strategy", "fsdp")) for part in parts]
    is_measured = all(strategy.startswith("fsdp") for strategy in strategies)
    severity = request.severity_of("space") if is_measured else WARNING
    return [*found, about("shared_root", what, f"{todo}, or set accept: [space]", severity)]


def step_findings(request: CheckRequest, facts: Facts) -> tuple[list[Finding], int | None]:
    """Problems with the steps of the job, and how many checkpoints it writes; None if that is unknown."""
    rows, batch = facts.train_rows, request.number("data.train_batch_size")
    epochs, asked = request.setting("trainer.total_epochs", 1), request.setting("trainer.total_training_steps")
    # What has the wrong type is found by the checks of numbers.
    if not rows or not batch or not isinstance(epochs, int) or not isinstance(asked or 0, int):
        return [], None
    steps_per_epoch = rows // batch
    steps = steps_per_epoch * epochs
    found: list[Finding] = []
    is_complete = True
    if asked is not None and asked > steps > 0:
        # trainer/sft_trainer_ray.py and trainer/ppo/v1/trainer_base.py: fit. The loop ends with the epochs, and only
        # the step whose number is total_training_steps counts as the last.
        is_complete = False
        what = (
            f"trainer.total_training_steps={asked}, but trainer.total_epochs={epochs} ends the job after {steps} steps "
            f"({rows} rows in batches of {batch})"
        )
        todo = "raise trainer.total_epochs; otherwise the last steps are not saved"
        found.append(about("trainer_overrides", what, todo, WARNING))
    elif asked is not None and steps:
        steps = asked
    facts.steps = steps
    found += resume_findings(request, steps, steps_per_epoch, epochs)
    every = request.setting("trainer.save_freq", -1)
    every = steps_per_epoch if every == "after_each_epoch" else every
    # SFT saves its last step even with save_freq=-1, RL does not.
    is_last_saved = is_complete and (every > 0 or request.is_sft)
    saved = steps // every if every > 0 else 0
    if steps and is_last_saved and (every <= 0 or steps % every):
        saved += 1
    return found, saved


def resume_findings(request: CheckRequest, steps: int, steps_per_epoch: int, epochs: int) -> Iterator[Finding]:
    """What is left to train after the checkpoint from which the job resumes."""
    match = RESUMED_STEP.search(str(request.setting("trainer.resume_from_path") or ""))
    step = int(match["step"]) if match else 0
    if not match or not steps:
        return
    if step >= steps:
        what = f"its checkpoint is of step {step}, and the job has {steps} steps: nothing is left to train"
        yield about("resume_from", what, "raise trainer.total_training_steps or trainer.total_epochs")
    # trainer/sft_trainer_ray.py: fit. At the end of an epoch, the state of the data loader has no rows left for the
    # next one. Of the last steps, only the very last is saved.
    elif request.is_sft and step and step % steps_per_epoch == 0 and steps > (last := steps_per_epoch * (epochs - 1)):
        what = (
            f"its checkpoint of step {step} is the end of an epoch: verl's SFT trainer skips the next one, ends at "
            f"step {last} of {steps}, and does not save its last steps"
        )
        todo = f"set trainer.total_epochs={epochs + 1} and trainer.total_training_steps={steps}"
        yield about("resume_from", what, todo, WARNING)


def checkpoints_kept(request: CheckRequest, part: Part, saved: int) -> int:
    """How many checkpoints exist at the same time: utils/checkpoint/checkpoint_manager.py."""
    limit = 1 if request.setting("trainer.remove_previous_ckpt_in_save", False) else request.setting(part.keep)
    if not isinstance(limit, int) or limit <= 0:
        return saved
    # With a limit of 1, the old one is removed after the new one is written; with more, before that.
    return min(saved, max(limit, 2))


def checkpoint_bytes(request: CheckRequest, part: Part, facts: Facts) -> int:
    """The size of a checkpoint: utils/checkpoint/fsdp_checkpoint_manager.py: save_checkpoint. 0: unknown.

    Compared with real checkpoints of a model of 124,096 parameters it is 97 % (actor), 96 % (with hf_model) and 116 %
    (critic, which has no output layer). What is missing does not grow with the model.
    """
    parameters = facts.critic_parameters if part == CRITIC else facts.parameters
    contents = request.setting(f"{part.trainer}checkpoint.save_contents", ["model", "optimizer", "extra"])
    # Training is in fp32 by default (trainer/config/engine/fsdp.yaml), and so are Adam's two moments.
    item = ITEM_BYTES.get(request.setting(f"{part.engine}.model_dtype", "fp32"), 4)
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
# By the key or the subject that a check is about. The order matters: later checks read facts of earlier ones.
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
    found: list[Finding] = []
    facts = Facts()
    for key, check in CHECKS:
        started = time.monotonic()
        try:
            found += check(request, facts)
        except Exception as error:
            # An unexpected file format must not stop a good job.
            what = f"could not be checked: {type(error).__name__}: {error_text(error)}"
            found.append(about(key, what, "report this error; the job itself may be fine", WARNING))
        facts.seconds[key] = round(time.monotonic() - started, 3)
    return found, facts
