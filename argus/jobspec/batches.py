# SPDX-License-Identifier: Apache-2.0
"""The settings of batches: their defaults for a job, and those of a JobSpec that verl would not read.

The batches that a GPU computes at once have a fixed size, or are dynamic: as large as a number of tokens allows. verl
reads the settings of one of the two. A JobSpec that gives a size gets fixed batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..common.findings import NOTE, WARNING, Finding
from ..io.hydra import override_key, override_text
from .owned import about_override
from .spec import JobSpec
from .verl_releases import PER_GPU, PPO, SFT, Profile


@dataclass(frozen=True)
class BatchKeys:
    """The keys of the settings of a part of the trainer that has batches of its own."""

    switch: str  # makes the batches dynamic
    sizes: tuple[str, ...]  # of fixed batches, over all GPUs; those for one GPU end in PER_GPU
    tokens: tuple[str, ...]  # of dynamic batches

    def sizes_in(self, settings: Mapping[str, str]) -> list[str]:
        """The keys of sizes that a JobSpec sets. settings: those of the JobSpec."""
        return [key for size in self.sizes for key in (size, size + PER_GPU) if settings.get(key, "null") != "null"]

    def is_fixed(self, settings: Mapping[str, str]) -> bool:
        """Whether batches have a fixed size: by the switch, or because a size is set."""
        return settings[self.switch].lower() == "false" if self.switch in settings else bool(self.sizes_in(settings))


ACTOR, ROLLOUT, REF = (f"actor_rollout_ref.{name}" for name in ("actor", "rollout", "ref"))
# workers/engine_workers.py:init_model: both are dynamic or both are fixed, and fixed ones both need a size.
POLICY = BatchKeys(
    f"{ACTOR}.use_dynamic_bsz",
    (f"{ACTOR}.ppo_micro_batch_size", f"{ROLLOUT}.log_prob_micro_batch_size"),
    (f"{ACTOR}.ppo_max_token_len_per_gpu", f"{ROLLOUT}.log_prob_max_token_len_per_gpu"),
)
REFERENCE = BatchKeys(
    f"{REF}.log_prob_use_dynamic_bsz", (f"{REF}.log_prob_micro_batch_size",), (f"{REF}.log_prob_max_token_len_per_gpu",)
)
CRITIC = BatchKeys("critic.use_dynamic_bsz", ("critic.ppo_micro_batch_size",), ("critic.ppo_max_token_len_per_gpu",))
DATA = BatchKeys("data.use_dynamic_bsz", ("data.micro_batch_size",), ("data.max_token_len_per_gpu",))


def settings_of(spec: JobSpec) -> dict[str, str]:
    """The values of a JobSpec's overrides, by their keys."""
    return {override_key(item): override_text(item) for item in spec.trainer_overrides if "=" in item}


def batch_overrides(spec: JobSpec) -> list[str]:
    """The default overrides of the switches, and of sizes that verl requires besides those of the JobSpec."""
    settings = settings_of(spec)
    if spec.workload == SFT:
        return [f"{DATA.switch}=False"] if DATA.sizes_in(settings) else []
    is_fixed = POLICY.is_fixed(settings)
    # Without dynamic batches, verl requires sizes of four kinds.
    overrides = [f"{POLICY.switch}={not is_fixed}"]
    if is_fixed and (sizes := POLICY.sizes_in(settings)):
        suffix = PER_GPU if sizes[0].endswith(PER_GPU) else ""
        # utils/config.py:validate_config requires the size of the reference as well, even if its batches are dynamic.
        missing = [key for key in (*POLICY.sizes, *REFERENCE.sizes) if settings.keys().isdisjoint((key, key + PER_GPU))]
        overrides += [f"{key}{suffix}={settings[sizes[0]]}" for key in missing]
    elif REFERENCE.sizes_in(settings):
        overrides.append(f"{REFERENCE.switch}=False")
    if spec.workload == PPO and (is_fixed or CRITIC.sizes_in(settings)):
        overrides.append(f"{CRITIC.switch}={not CRITIC.sizes_in(settings)}")
    return overrides


def batch_findings(spec: JobSpec, profile: Profile) -> Iterator[Finding]:
    """Notes on sizes that make batches fixed, and findings about settings of batches that verl would not read."""
    settings = settings_of(spec)
    parts = {SFT: (DATA,), PPO: (POLICY, REFERENCE, CRITIC)}.get(spec.workload, (POLICY, REFERENCE))
    for part in parts:
        sizes, is_fixed = part.sizes_in(settings), part.is_fixed(settings)
        if part is REFERENCE and part.switch not in settings:
            is_fixed = is_fixed or POLICY.is_fixed(settings)
        if part is CRITIC:
            yield from critic_findings(sizes, profile)
            continue
        if sizes and is_fixed and part.switch not in settings:
            yield about_override(sizes[0], f"makes batches fixed: {part.switch}=False", "", NOTE)
        unread = [key for key in part.tokens if key in settings] if is_fixed else sizes
        problem, remedy = (
            f"is not read with {part.switch}={not is_fixed}",
            f"remove it, or set {part.switch}={is_fixed}",
        )
        for key in unread:
            yield about_override(key, problem, remedy, WARNING)


def critic_findings(sizes: list[str], profile: Profile) -> Iterator[Finding]:
    """Findings about sizes of the critic's batches. These are always dynamic: its engine gets no use_dynamic_bsz."""
    # workers/config/engine.py:EngineConfig, trainer/ppo/v1/trainer_base.py:_setup
    tokens = "++critic.ppo_infer_max_token_len_per_gpu" if profile.is_0_9 else CRITIC.tokens[0]
    # Another finding reports the older form.
    for key in (key for key in sizes if key.endswith(PER_GPU)):
        yield about_override(key, f"is not read by verl {profile.version}", f"set {tokens} instead", WARNING)
