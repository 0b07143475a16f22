"""Patches verl 0.8, which has no platforms, so that its SFT runs on a CPU."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import verl.utils.device

from .device import DEVICE
from .patches import AfterImport


def complete_torch_cpu() -> None:
    """verl uses ``torch.cpu`` as the device, and calls functions that only ``torch.cuda`` has."""
    for name, function in vars(DEVICE).items():
        if not name.startswith("__"):
            setattr(torch.cpu, name, function)


def register_engines_for_cpu() -> None:
    """verl registers its FSDP engines for "cuda" and "npu" only."""

    def patch(module: ModuleType) -> None:
        register = module.EngineRegistry.register

        def with_cpu(model_type: str, backend: list[str] | str, device: list[str] | str = "cuda") -> Callable[..., Any]:
            return register(model_type, backend, [*([device] if isinstance(device, str) else device), "cpu"])

        module.EngineRegistry.register = with_cpu

    sys.meta_path.insert(0, AfterImport("verl.workers.engine.base", patch))


def run_driver_on_cpu() -> None:
    """SFT's driver computes sums on ``trainer.device``, which becomes "cpu"; its workers request GPUs all the same."""

    def set_cpu(config: Any) -> None:
        config.trainer.device = "cpu"

    def patch(module: ModuleType) -> None:
        init = module.RayWorkerGroup.__init__

        @functools.wraps(init)
        def init_with_gpus(self: Any, *args: Any, **kwargs: Any) -> None:
            init(self, *args, **{**kwargs, "device_name": "cuda"})

        module.RayWorkerGroup.__init__ = init_with_gpus

    verl.utils.device.auto_set_device = set_cpu
    sys.meta_path.insert(0, AfterImport("verl.single_controller.ray.base", patch))


def apply() -> None:
    complete_torch_cpu()
    register_engines_for_cpu()
    run_driver_on_cpu()
