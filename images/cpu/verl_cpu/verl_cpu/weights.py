"""The checkpoint engine ``ray_cpu``: sends a trainer's weights to rollouts in another pool, through an actor of Ray.

verl's own engines need GPUs. In ``actor_rollout_ref.rollout.checkpoint_engine``, ``backend=ray_cpu`` and
``custom_backend_module=verl_cpu.weights`` select this one. All weights are one object, so models have to be small.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import ray
import torch
from verl.checkpoint_engine import CheckpointEngine, CheckpointEngineRegistry


class WeightStore:
    """The Ray actor with the last weights of the trainer and their step."""

    def __init__(self) -> None:
        self.changed = asyncio.Condition()
        self.step: int | None = None
        self.tensors: dict[str, torch.Tensor] = {}

    async def put(self, step: int | None, tensors: dict[str, torch.Tensor]) -> None:
        async with self.changed:
            self.step, self.tensors = step, tensors
            self.changed.notify_all()

    async def get(self, step: int | None) -> dict[str, torch.Tensor]:
        async with self.changed:
            await self.changed.wait_for(lambda: self.tensors and self.step == step)
            return self.tensors


@CheckpointEngineRegistry.register("ray_cpu")
class RayCheckpointEngine(CheckpointEngine):
    def __init__(self, bucket_size: int, is_master: bool = False, **_: Any) -> None:
        self.is_master = is_master
        self.store = ray.remote(WeightStore).options(num_cpus=0).remote() if is_master else None

    def prepare(self) -> Any:
        return self.store

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[Any]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        """The arguments of init_process_group for all processes: the store, which is the first result of prepare."""
        return {"weights": metadata[:1] * actor_wg_world_size}, {"weights": metadata[:1] * rollout_world_size}

    def init_process_group(self, weights: Any) -> None:
        self.store = weights

    def finalize(self) -> None:
        pass

    @torch.no_grad()
    async def send_weights(self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None) -> None:
        # Every rank must iterate: gathering a sharded tensor needs all of them.
        tensors = {name: tensor.detach().cpu() for name, tensor in weights}
        if self.is_master:
            await self.store.put.remote(global_steps, tensors)

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, torch.Tensor]]:
        for item in (await self.store.get.remote(global_steps)).items():
            yield item
