"""Patches what verl hard-codes for accelerators and no plugin can set; docstrings say what verl does without them."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
import transformers
from torchdata.stateful_dataloader import StatefulDataLoader

POLL_SECONDS = 0.2


def use_cuda_engines() -> None:
    """verl registers its FSDP engines for "cuda" only. This variable makes it use them on other devices."""
    os.environ.setdefault("VERL_ENGINE_DEVICE", "cuda")


def deduplicate_backends() -> None:
    """verl asks for the backend ``cpu:gloo,<device>:<backend>``, here ``cpu:gloo,cpu:gloo``, which torch refuses.

    verl 0.8 has only nccl as the backend of a device.
    """
    init = dist.init_process_group

    @functools.wraps(init)
    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
        if backend:
            backend = ",".join(dict.fromkeys(backend.replace("nccl", "gloo").split(",")))
        return init(backend, *args, **kwargs)

    dist.init_process_group = init_process_group


def disable_pinned_memory() -> None:
    """verl wraps the reference model with ``CPUOffloadPolicy(pin_memory=True)``, and pinning needs an accelerator."""
    torch.Tensor.pin_memory = lambda self, *args, **kwargs: self


def load_critic_without_flash_attention() -> None:
    """verl loads PPO's critic with ``flash_attention_2`` (verl.utils.model.load_valuehead_model)."""
    cls = transformers.AutoModelForTokenClassification
    load = cls.from_pretrained.__func__

    @functools.wraps(load)
    def from_pretrained(klass: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("attn_implementation") == "flash_attention_2":
            kwargs["attn_implementation"] = "eager"
        return load(klass, *args, **kwargs)

    cls.from_pretrained = classmethod(from_pretrained)


def load_data_without_processes() -> None:
    """SFT reads its data with 8 forked processes (trainer/sft_trainer_ray.py).

    As forks of a driver with dozens of threads, they sometimes hang in ``torch.set_num_threads``. Tests have little
    data, and need none of them.
    """
    init = StatefulDataLoader.__init__

    @functools.wraps(init)
    def without_processes(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **{**kwargs, "num_workers": 0})

    StatefulDataLoader.__init__ = without_processes


class AfterImport(importlib.abc.MetaPathFinder):
    """Patches a module right after its import, for modules that verl imports after this package."""

    def __init__(self, name: str, patch: Callable[[ModuleType], None]) -> None:
        self.name = name
        self.patch = patch

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec and spec.loader:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                self.patch(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def poll_rollouts_often() -> None:
    """The trainer polls for finished rollouts every 2 s (trainer/ppo/v1/replay_buffer.py), most of a step in tests."""

    def patch(module: ModuleType) -> None:
        init = module.ReplayBuffer.__init__

        @functools.wraps(init)
        def polling(self: Any, *args: Any, **kwargs: Any) -> None:
            init(self, *args, **{"poll_interval": POLL_SECONDS, **kwargs})

        module.ReplayBuffer.__init__ = polling

    sys.meta_path.insert(0, AfterImport("verl.trainer.ppo.v1.replay_buffer", patch))


def keep_weights_of_layers() -> None:
    """On a CPU, vLLM packs the weight of a linear layer and empties the parameter, so that verl can load no update.

    If the parameter is kept, ``process_weights_after_loading``, which verl calls after each update, packs the new one.
    """

    def patch(module: ModuleType) -> None:
        pack = module.dispatch_cpu_unquantized_gemm

        @functools.wraps(pack)
        def dispatch(layer: Any, remove_weight: bool = False) -> None:
            pack(layer, remove_weight=False)

        module.dispatch_cpu_unquantized_gemm = dispatch

    name = "vllm.model_executor.layers.utils"
    # A worker of vLLM imports verl, for its worker extension, after this module of vLLM.
    if name in sys.modules:
        patch(sys.modules[name])
    else:
        sys.meta_path.insert(0, AfterImport(name, patch))


def apply() -> None:
    use_cuda_engines()
    deduplicate_backends()
    disable_pinned_memory()
    load_critic_without_flash_attention()
    load_data_without_processes()
    poll_rollouts_often()
    keep_weights_of_layers()
