"""A CPU test backend for verl 0.9.

verl's own extension points carry nearly all of it: a platform (``verl.plugin.platform``), and a
rollout (``RolloutReplicaRegistry``) that generates with transformers. What verl hard-codes for
accelerators is patched in ``patches``, one function each, with the place in verl that needs it.

It exists so that the whole way of a job can be tested for real without a GPU. It is not a way to
train: it is slow, and its GPUs are logical ones (``ray start --num-gpus=N``).
"""

from __future__ import annotations

from . import patches, platform, rollout

patches.apply()

__all__ = ["patches", "platform", "rollout"]
