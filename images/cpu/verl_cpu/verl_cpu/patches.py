"""What verl hard-codes for accelerators and a plugin cannot reach otherwise."""

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


def engine_of_cuda() -> None:
    """FSDP engines are registered for "cuda" only; verl's own switch takes them on another device."""
    os.environ.setdefault("VERL_ENGINE_DEVICE", "cuda")


def one_backend_per_device() -> None:
    """verl asks for ``cpu:gloo,<device>:<backend>``, here ``cpu:gloo,cpu:gloo``, which torch refuses.

    verl 0.8 knows only nccl as the backend.
    """
    init = dist.init_process_group

    @functools.wraps(init)
    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
        if backend:
            backend = ",".join(dict.fromkeys(backend.replace("nccl", "gloo").split(",")))
        return init(backend, *args, **kwargs)

    dist.init_process_group = init_process_group


def no_pinned_memory() -> None:
    """The reference model is wrapped with ``CPUOffloadPolicy(pin_memory=True)``; pinning needs an accelerator."""
    torch.Tensor.pin_memory = lambda self, *args, **kwargs: self


def eager_critic() -> None:
    """PPO's critic is loaded with ``flash_attention_2`` (verl.utils.model.load_valuehead_model)."""
    cls = transformers.AutoModelForTokenClassification
    load = cls.from_pretrained.__func__

    @functools.wraps(load)
    def from_pretrained(klass: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("attn_implementation") == "flash_attention_2":
            kwargs["attn_implementation"] = "eager"
        return load(klass, *args, **kwargs)

    cls.from_pretrained = classmethod(from_pretrained)


def no_loader_processes() -> None:
    """SFT reads its data with 8 forked processes (trainer/sft_trainer_ray.py).

    They are forks of a driver with dozens of threads, and hang once in a while in ``torch.set_num_threads``. Tests have
    little data.
    """
    init = StatefulDataLoader.__init__

    @functools.wraps(init)
    def without_processes(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **{**kwargs, "num_workers": 0})

    StatefulDataLoader.__init__ = without_processes


class AfterImport(importlib.abc.MetaPathFinder):
    """Patches a module when it is imported: verl imports this package before its own modules."""

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


def frequent_polls() -> None:
    """The trainer looks for finished rollouts every 2 s (trainer/ppo/v1/replay_buffer.py), in tests most of a step."""

    def patch(module: ModuleType) -> None:
        init = module.ReplayBuffer.__init__

        @functools.wraps(init)
        def polling(self: Any, *args: Any, **kwargs: Any) -> None:
            init(self, *args, **{"poll_interval": POLL_SECONDS, **kwargs})

        module.ReplayBuffer.__init__ = polling

    sys.meta_path.insert(0, AfterImport("verl.trainer.ppo.v1.replay_buffer", patch))


def kept_weights() -> None:
    """vLLM packs a linear layer's weight for the CPU and empties the parameter, so that no update could be loaded.

    After each update, verl calls ``process_weights_after_loading``, which packs the new weight.
    """

    def patch(module: ModuleType) -> None:
        pack = module.dispatch_cpu_unquantized_gemm

        @functools.wraps(pack)
        def dispatch(layer: Any, remove_weight: bool = False) -> None:
            pack(layer, remove_weight=False)

        module.dispatch_cpu_unquantized_gemm = dispatch

    name = "vllm.model_executor.layers.utils"
    # A worker of vLLM imports verl, for its worker extension, after vLLM's own modules.
    if name in sys.modules:
        patch(sys.modules[name])
    else:
        sys.meta_path.insert(0, AfterImport(name, patch))


def apply() -> None:
    engine_of_cuda()
    one_backend_per_device()
    no_pinned_memory()
    eager_critic()
    no_loader_processes()
    frequent_polls()
    kept_weights()
