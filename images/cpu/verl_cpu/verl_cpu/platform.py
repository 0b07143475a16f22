"""The platform ``cpu``: verl's interface of a device, implemented for a CPU."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import psutil
import torch
from verl.plugin.platform import PlatformBase, PlatformRegistry


def _device_module() -> types.ModuleType:
    """The functions of ``torch.cuda`` that verl calls: those of ``torch.cpu``, host memory, or no-ops.

    There is always exactly one device, so selecting a device and emptying its cache do nothing.
    """
    module = types.ModuleType("verl_cpu.device")
    for name in ("Stream", "StreamContext", "stream", "current_stream", "synchronize", "is_initialized"):
        if hasattr(torch.cpu, name):
            setattr(module, name, getattr(torch.cpu, name))
    for name in (
        "set_device",
        "empty_cache",
        "ipc_collect",
        "reset_peak_memory_stats",
        "reset_accumulated_memory_stats",
        "set_per_process_memory_fraction",
        "manual_seed",
        "manual_seed_all",
    ):
        setattr(module, name, lambda *args, **kwargs: None)
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
        setattr(module, name, lambda *args, **kwargs: 0)
    module.is_available = lambda: True
    module.device_count = lambda: 1
    module.current_device = lambda: "cpu"
    module.get_device_name = lambda *args: "CPU"
    module.get_rng_state, module.set_rng_state = torch.get_rng_state, torch.set_rng_state
    module.mem_get_info = lambda *args: (psutil.virtual_memory().available, psutil.virtual_memory().total)
    module.get_device_properties = lambda *args: types.SimpleNamespace(
        name="CPU", total_memory=psutil.virtual_memory().total
    )
    return module


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    """One CPU as one device; a node's number of devices is Ray's logical ``GPU`` resource."""

    device_name = "cpu"
    vendor_name = "cpu"
    device_module = _device_module()

    def is_available(self) -> bool:
        return True

    def current_device(self) -> str:
        # verl passes this to torch.device(), which takes an index alone for an accelerator.
        return "cpu"

    def device_count(self) -> int:
        return 1

    def set_device(self, device_index: int) -> None:
        pass

    def synchronize(self, device_index: int | None = None) -> None:
        pass

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def set_allocator_settings(self, settings: str) -> None:
        pass

    def empty_cache(self) -> None:
        pass

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def profiler_start(self) -> None:
        pass

    def profiler_stop(self) -> None:
        pass

    def ray_resource_name(self) -> str:
        return "GPU"

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> Any:
        return None
