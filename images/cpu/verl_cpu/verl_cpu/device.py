"""The CPU as torch's module of an accelerator, like ``torch.cuda``."""

from __future__ import annotations

import types

import psutil
import torch


def create_device_module() -> types.ModuleType:
    """A module with the functions of ``torch.cuda`` that verl calls.

    They are those of ``torch.cpu``, tell the memory of the host, or do nothing: there is one device, without a cache.
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


DEVICE = create_device_module()
