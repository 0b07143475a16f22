# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of the gate that looks at the things themselves: data, model, reward, packages and space, on the nodes.

It travels into Ray tasks by value, where there is neither Ansible nor this collection. So it imports nothing of
either, of the image's packages only what a check needs and inside of it, and a finding is a mapping with the keys of
``findings.Finding``. Of data and weights it reads footers, headers and a few rows.

A request is a mapping:

shared_root, workload, code_path, model, dataset: as in the JobSpec; all paths are absolute.
reward: the file and the function, or None.
environment: the environment variables of the job.
files: what has to be there on every node: paths, or a mapping of paths to their sizes on the head (None: any).
accept: checks whose errors the user takes as warnings: "requirements", "space".
config: the composed Hydra configuration of the job, or None when it is not known; then less is checked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from .common import ITEM_BYTES, SFT, WARNING, accepted, finding, has_critic, setting, size_text

ALMOST_FULL = 0.8
# What a checkpoint is of, and where the configuration speaks of it: SFT saves the model, RL actor and critic.
CHECKPOINTS = {
    "model": {
        "parameters": "parameters",
        "model": "model",
        "engine": "engine",
        "strategy": "engine.strategy",
        "contents": "checkpoint",
        "keep": "trainer.max_ckpt_to_keep",
    },
    "actor": {
        "parameters": "parameters",
        "model": "actor_rollout_ref.model",
        "engine": "actor_rollout_ref.actor.fsdp_config",
        "strategy": "actor_rollout_ref.actor.strategy",
        "contents": "actor_rollout_ref.actor.checkpoint",
        "keep": "trainer.max_actor_ckpt_to_keep",
    },
    "critic": {
        "parameters": "critic_parameters",
        "model": "critic.model",
        "engine": "critic.fsdp",
        "strategy": "critic.strategy",
        "contents": "critic.checkpoint",
        "keep": "trainer.max_critic_ckpt_to_keep",
    },
}


def space_findings(request: Mapping[str, Any], facts: dict[str, Any]) -> list[dict[str, str]]:
    """Whether the checkpoints of the whole job will fit."""
    config = request.get("config")
    root = request["shared_root"]
    status = os.statvfs(root)
    free = facts["free_bytes"] = status.f_bavail * status.f_frsize
    if config is None:
        return []
    found, saved = step_findings(request, facts)
    if saved is None:
        return found
    parts = ["model"] if request["workload"] == SFT else ["actor", "critic"] if has_critic(request) else ["actor"]
    each = {part: checkpoint_bytes(config, CHECKPOINTS[part], facts) for part in parts}
    if not all(each.values()):
        return found
    kept = {part: checkpoints_kept(config, CHECKPOINTS[part], saved) for part in parts}
    needed = sum(kept[part] * each[part] for part in parts)
    facts.update(checkpoint_bytes=sum(each.values()), checkpoints_kept=max(kept.values()), checkpoint_space=needed)
    if not needed or needed < ALMOST_FULL * free:
        return found
    terms = ", ".join(
        f"{kept[part]} of {saved} at a time, {size_text(each[part])} each for the {part}" for part in parts
    )
    what = f"checkpoints need about {size_text(needed)} ({terms}), {size_text(free)} are free in {root}"
    todo = f"raise trainer.save_freq, lower {' and '.join(CHECKPOINTS[part]['keep'] for part in parts)}, make room"
    if needed <= free:
        return [*found, finding("shared_root", what, todo, WARNING)]
    # Other strategies than FSDP write other files: about as large, but nobody has measured them here.
    is_measured = all(str(setting(config, CHECKPOINTS[part]["strategy"], "fsdp")).startswith("fsdp") for part in parts)
    severity = accepted(request, "space") if is_measured else WARNING
    return [*found, finding("shared_root", what, f"{todo}, or insist with accept: [space]", severity)]


def step_findings(request: Mapping[str, Any], facts: dict[str, Any]) -> tuple[list[dict[str, str]], int | None]:
    """Fills in the steps, and returns how many checkpoints the job writes."""
    config = request["config"]
    rows, batch = facts.get("train_rows"), setting(config, "data.train_batch_size")
    epochs, asked = setting(config, "trainer.total_epochs", 1), setting(config, "trainer.total_training_steps")
    if not rows or not batch:
        return [], None
    steps_per_epoch = rows // batch
    steps = steps_per_epoch * epochs
    found: list[dict[str, str]] = []
    is_complete = True
    if asked is not None and asked > steps > 0:
        # trainer/sft_trainer_ray.py and trainer/ppo/v1/trainer_base.py: fit; the loop ends with the epochs, and only
        # the step of the asked number counts as the last.
        is_complete = False
        what = (
            f"trainer.total_training_steps={asked}, but trainer.total_epochs={epochs} ends the job after {steps} steps "
            f"({rows} rows in batches of {batch})"
        )
        todo = "raise trainer.total_epochs; as it is, the last steps are not saved"
        found.append(finding("trainer_overrides", what, todo, WARNING))
    elif asked is not None and steps:
        steps = asked
    facts["steps"] = steps
    every = setting(config, "trainer.save_freq", -1)
    every = steps_per_epoch if every == "after_each_epoch" else every
    # SFT saves its last step even with save_freq=-1, RL does not.
    is_last_saved = is_complete and (every > 0 or request["workload"] == SFT)
    saved = steps // every if every > 0 else 0
    if steps and is_last_saved and (every <= 0 or steps % every):
        saved += 1
    return found, saved


def checkpoints_kept(config: Mapping[str, Any], keys: Mapping[str, str], saved: int) -> int:
    """How many are there at the same time: utils/checkpoint/checkpoint_manager.py."""
    limit = 1 if setting(config, "trainer.remove_previous_ckpt_in_save", False) else setting(config, keys["keep"])
    if not isinstance(limit, int) or limit <= 0:
        return saved
    # With 1 the old one goes once the new one is there, with more before that.
    return min(saved, max(limit, 2))


def checkpoint_bytes(config: Mapping[str, Any], keys: Mapping[str, str], facts: Mapping[str, Any]) -> int:
    """utils/checkpoint/fsdp_checkpoint_manager.py: save_checkpoint. 0 when the number of parameters is not known.

    Of real checkpoints of a model of 124,096 parameters it is 97 % (actor), 96 % (with hf_model) and 116 % (critic,
    which has no output layer); what is missing does not grow with the model.
    """
    contents = setting(config, f"{keys['contents']}.save_contents", ["model", "optimizer", "extra"])
    # Training is in fp32 unless told otherwise (trainer/config/engine/fsdp.yaml), and so are Adam's two moments.
    item = ITEM_BYTES.get(setting(config, f"{keys['engine']}.model_dtype", "fp32"), 4)
    has_lora = (setting(config, f"{keys['model']}.lora_rank") or setting(config, f"{keys['model']}.lora.rank") or 0) > 0
    items = 0
    if "model" in contents and not (has_lora and setting(config, f"{keys['contents']}.save_lora_only", False)):
        items += 1
    if "optimizer" in contents and not has_lora:
        items += 2
    # The whole model once more, in the type of training.
    if "hf_model" in contents:
        items += 1
    return int(facts.get(keys["parameters"]) or 0) * item * items
