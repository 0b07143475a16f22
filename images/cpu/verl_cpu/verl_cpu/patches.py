"""What verl 0.9 hard-codes for accelerators and a plugin cannot reach otherwise."""

from __future__ import annotations

import functools
import os
from typing import Any

import torch
import torch.distributed as dist
import transformers
from torchdata.stateful_dataloader import StatefulDataLoader


def engine_of_cuda() -> None:
    """FSDP engines are registered for "cuda" only; verl's own switch takes them on another device."""
    os.environ.setdefault("VERL_ENGINE_DEVICE", "cuda")


def one_backend_per_device() -> None:
    """verl asks for ``cpu:gloo,<device>:<backend>``, here ``cpu:gloo,cpu:gloo``, which torch refuses."""
    init = dist.init_process_group

    @functools.wraps(init)
    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> Any:
        if backend and "," in backend:
            backend = ",".join(dict.fromkeys(backend.split(",")))
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


def apply() -> None:
    engine_of_cuda()
    one_backend_per_device()
    no_pinned_memory()
    eager_critic()
    no_loader_processes()
