"""A CPU test backend for verl 0.9, and for SFT with verl 0.8.

It mainly uses verl's extension points: a platform (``verl.plugin.platform``), and a rollout
(``RolloutReplicaRegistry``) that generates with transformers. ``patches`` replaces what verl hard-codes for
accelerators, with one function for each place in verl. verl 0.8 has no such points, and ``verl_0_8`` patches more.

It allows testing every step of a job without a GPU. It is not meant for training: it is slow, and its GPUs are
logical (``ray start --num-gpus=N``).
"""

from __future__ import annotations

from importlib.util import find_spec

from . import patches

patches.apply()
if find_spec("verl.plugin"):
    from . import platform, rollout  # noqa: F401
else:
    from . import verl_0_8

    verl_0_8.apply()
