"""What SFT of verl 0.8 needs on a CPU: this verl has no platforms."""

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


def whole_device() -> None:
    """verl takes ``torch.cpu`` as the device, which lacks functions of ``torch.cuda`` that verl calls."""
    for name, function in vars(DEVICE).items():
        if not name.startswith("__"):
            setattr(torch.cpu, name, function)


def engines_of_cuda() -> None:
    """FSDP engines are registered for "cuda" and "npu" only, without a switch."""

    def patch(module: ModuleType) -> None:
        register = module.EngineRegistry.register

        def with_cpu(model_type: str, backend: list[str] | str, device: list[str] | str = "cuda") -> Callable[..., Any]:
            return register(model_type, backend, [*([device] if isinstance(device, str) else device), "cpu"])

        module.EngineRegistry.register = with_cpu

    sys.meta_path.insert(0, AfterImport("verl.workers.engine.base", patch))


def driver_on_the_cpu() -> None:
    """SFT's driver sums on ``trainer.device``, by whose name its workers request GPUs as well."""

    def on_the_cpu(config: Any) -> None:
        config.trainer.device = "cpu"

    def patch(module: ModuleType) -> None:
        init = module.RayWorkerGroup.__init__

        @functools.wraps(init)
        def with_gpus(self: Any, *args: Any, **kwargs: Any) -> None:
            init(self, *args, **{**kwargs, "device_name": "cuda"})

        module.RayWorkerGroup.__init__ = with_gpus

    verl.utils.device.auto_set_device = on_the_cpu
    sys.meta_path.insert(0, AfterImport("verl.single_controller.ray.base", patch))


def apply() -> None:
    whole_device()
    engines_of_cuda()
    driver_on_the_cpu()
