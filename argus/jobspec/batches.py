# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The batches that a GPU computes at once: of a fixed size, or dynamic, of what a number of tokens allows.

verl reads the settings of one of the two. A JobSpec that gives a size gets it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..common.findings import NOTE, WARNING, Finding
from ..launcher.hydra import override_key, override_text
from .owned import about_override
from .spec import JobSpec
from .verl_releases import PPO, SFT, Profile

PER_GPU = "_per_gpu"


@dataclass(frozen=True)
class Part:
    """A part of a trainer with batches of its own.

    switch: the setting that makes them dynamic. sizes: those of fixed ones over all GPUs, each with a newer setting
    PER_GPU. tokens: those of dynamic ones.
    """

    switch: str
    sizes: tuple[str, ...]
    tokens: tuple[str, ...]

    def given(self, own: Mapping[str, str]) -> list[str]:
        """The settings of sizes in a JobSpec."""
        return [key for size in self.sizes for key in (size, size + PER_GPU) if own.get(key, "null") != "null"]

    def is_fixed(self, own: Mapping[str, str]) -> bool:
        """Whether they have a fixed size: as the switch says, or because a size is given."""
        return own[self.switch].lower() == "false" if self.switch in own else bool(self.given(own))


ACTOR, ROLLOUT, REF = (f"actor_rollout_ref.{name}" for name in ("actor", "rollout", "ref"))
# workers/engine_workers.py:init_model: the two are of one kind, and of fixed ones both need a size.
POLICY = Part(
    f"{ACTOR}.use_dynamic_bsz",
    (f"{ACTOR}.ppo_micro_batch_size", f"{ROLLOUT}.log_prob_micro_batch_size"),
    (f"{ACTOR}.ppo_max_token_len_per_gpu", f"{ROLLOUT}.log_prob_max_token_len_per_gpu"),
)
REFERENCE = Part(
    f"{REF}.log_prob_use_dynamic_bsz", (f"{REF}.log_prob_micro_batch_size",), (f"{REF}.log_prob_max_token_len_per_gpu",)
)
CRITIC = Part("critic.use_dynamic_bsz", ("critic.ppo_micro_batch_size",), ("critic.ppo_max_token_len_per_gpu",))
DATA = Part("data.use_dynamic_bsz", ("data.micro_batch_size",), ("data.max_token_len_per_gpu",))


def settings_of(spec: JobSpec) -> dict[str, str]:
    return {override_key(one): override_text(one) for one in spec.trainer_overrides if "=" in one}


def batch_overrides(spec: JobSpec) -> list[str]:
    """The defaults of the switches, and of sizes that verl requires besides those of a JobSpec."""
    own = settings_of(spec)
    if spec.workload == SFT:
        return [f"{DATA.switch}=False"] if DATA.given(own) else []
    fixed = POLICY.is_fixed(own)
    # Without dynamic batches, verl requires sizes of four kinds.
    overrides = [f"{POLICY.switch}={not fixed}"]
    if fixed and (given := POLICY.given(own)):
        form = PER_GPU if given[0].endswith(PER_GPU) else ""
        # utils/config.py:validate_config requires that of the reference as well, even if its batches are dynamic.
        missing = [size for size in (*POLICY.sizes, *REFERENCE.sizes) if own.keys().isdisjoint((size, size + PER_GPU))]
        overrides += [f"{size}{form}={own[given[0]]}" for size in missing]
    elif REFERENCE.given(own):
        overrides.append(f"{REFERENCE.switch}=False")
    if spec.workload == PPO and (fixed or CRITIC.given(own)):
        overrides.append(f"{CRITIC.switch}={not CRITIC.given(own)}")
    return overrides


def batch_findings(spec: JobSpec, profile: Profile) -> Iterator[Finding]:
    """Sizes that a JobSpec gets, and settings of its batches that verl does not read."""
    own = settings_of(spec)
    parts = {SFT: (DATA,), PPO: (POLICY, REFERENCE, CRITIC)}.get(spec.workload, (POLICY, REFERENCE))
    for part in parts:
        given, fixed = part.given(own), part.is_fixed(own)
        if part is REFERENCE and part.switch not in own:
            fixed = fixed or POLICY.is_fixed(own)
        if part is CRITIC and profile.release >= (0, 8, 0):
            yield from critic_findings(given, profile)
            continue
        if given and fixed and part.switch not in own:
            yield about_override(given[0], f"makes batches fixed: {part.switch}=False", "", NOTE)
        unread = [key for key in part.tokens if key in own] if fixed else given
        what, todo = f"is not read with {part.switch}={not fixed}", f"remove it, or set {part.switch}={fixed}"
        for key in unread:
            yield about_override(key, what, todo, WARNING)


def critic_findings(given: list[str], profile: Profile) -> Iterator[Finding]:
    """From 0.8 on, batches of a critic are always dynamic: its engine does not get critic.use_dynamic_bsz."""
    # workers/config/engine.py:EngineConfig, trainer/ppo/v1/trainer_base.py:_setup
    tokens = "++critic.ppo_infer_max_token_len_per_gpu" if profile.release >= (0, 9, 0) else CRITIC.tokens[0]
    # About the older form, another finding tells.
    for key in (key for key in given if key.endswith(PER_GPU)):
        yield about_override(key, f"is not read by verl {profile.version}", f"set {tokens} instead", WARNING)
