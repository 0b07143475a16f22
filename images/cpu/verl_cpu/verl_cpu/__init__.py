"""A CPU test backend for verl 0.9.

It mainly uses verl's extension points: a platform (``verl.plugin.platform``), and a rollout
(``RolloutReplicaRegistry``) that generates with transformers. ``patches`` replaces what verl hard-codes for
accelerators, with one function for each place in verl.

It allows testing every step of a job without a GPU. It is not meant for training: it is slow, and its GPUs are
logical (``ray start --num-gpus=N``).
"""

from __future__ import annotations

from . import patches, platform, rollout

patches.apply()

__all__ = ["patches", "platform", "rollout"]
