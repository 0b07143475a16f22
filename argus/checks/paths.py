# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Paths that overrides name outside the shared root: other nodes may not have them."""

from __future__ import annotations

from pathlib import Path

from ..common.findings import ERROR, WARNING, Finding
from ..common.shared_root import DATASETS, MODELS, USER_CODE, bring, outside, under_root
from .common import CheckRequest, listed
from .facts import Facts

# The settings with paths, and the directory of the shared root that is for them.
HOMES = {
    "data.train_files": DATASETS,
    "data.val_files": DATASETS,
    "data.custom_cls.path": USER_CODE,
    "actor_rollout_ref.model.path": MODELS,
    "actor_rollout_ref.model.tokenizer_path": MODELS,
    "actor_rollout_ref.model.lora_adapter_path": MODELS,
    "critic.model.path": MODELS,
    "critic.model.tokenizer_path": MODELS,
    "model.path": MODELS,
    "model.tokenizer_path": MODELS,
    "reward.reward_model.model_path": MODELS,
    "trainer.resume_from_path": "jobs",
}


def path_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    """Paths outside the shared root: an error if this worker has none, a warning if it has one of its own."""
    found = []
    for key, home in HOMES.items():
        if key.startswith("critic.") and not request.has_critic:
            continue
        for path in listed(request.setting(key)):
            if not isinstance(path, str) or not path.startswith("/") or under_root(path, request.shared_root):
                continue
            what, severity = outside(path, request.shared_root), ERROR
            if Path(path).exists():
                what, severity = f"{what}: this worker has it, but others may not have the same", WARNING
            found.append(Finding(key, what, bring(home), severity, key=key))
    return found
