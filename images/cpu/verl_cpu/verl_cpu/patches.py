"""What verl 0.9 hard-codes for accelerators and a plugin cannot reach otherwise."""

from __future__ import annotations

import functools
import os
from typing import Any

import torch
import torch.distributed as dist
import transformers


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


def apply() -> None:
    engine_of_cuda()
    one_backend_per_device()
    no_pinned_memory()
    eager_critic()
