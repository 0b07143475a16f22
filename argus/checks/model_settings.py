# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of the job that the model's config.json contradicts: parallel sizes, lengths, and code of its own.

Sources are files below verl/ in 0.9.1, unless comments say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from ..common.findings import ERROR, WARNING, Finding, about
from .common import CheckRequest, Configuration

ROLLOUT = "actor_rollout_ref.rollout"
ENGINES = ("vllm", "sglang")
# The part of a multimodal model that reads and writes text.
TEXT_PARTS = ("thinker_config", "text_config", "llm_config", "language_config")
# Parts of the names of architectures that predict tokens.
PREDICTING = ("ForCausalLM", "ForConditionalGeneration", "ForVision2Seq", "Text2Text")


def text_model(request: CheckRequest, section: str, values: Mapping[str, Any]) -> Configuration:
    """A config.json with the job's changes, the part for text on top. Defaults of transformers are not in it."""
    # workers/config/model.py: HFModelConfig.__post_init__
    changes = request.setting(f"{section}.override_config", {})
    values = {**values, **changes.get("model_config", changes)}
    for part in TEXT_PARTS:
        values |= values.get(part) or {}
    return Configuration(values)


def setting_findings(request: CheckRequest, section: str, values: Mapping[str, Any]) -> Iterator[Finding]:
    yield from code_findings(request, section, values)
    if section == request.model_section:
        yield from architecture_findings(request, section, values)
        model = text_model(request, section, values)
        yield from length_findings(request, model)
        if not request.is_sft and request.setting(f"{ROLLOUT}.name") in ENGINES:
            yield from head_findings(request, model)


def code_findings(request: CheckRequest, section: str, values: Mapping[str, Any]) -> Iterator[Finding]:
    """A model whose classes transformers does not have."""
    kind = values["model_type"]
    # A library of the job may add the type; of deepseek_v4, vLLM has the class (workers/config/model.py).
    if kind == "deepseek_v4" or request.setting(f"{section}.external_lib") or is_known_type(request, kind):
        return
    if "AutoConfig" not in (values.get("auto_map") or {}):
        what = f"has model_type {kind}, which transformers in the image does not know"
        yield about("model", what, "use an image with a version that does (see ray_image), or another model")
        return
    keys = [f"{section}.trust_remote_code"]
    if request.has_critic and request.setting("critic.model.path", request.model_path) == request.model_path:
        keys.append("critic.model.trust_remote_code")
    # Before 0.9, trainer/main_ppo.py has a tokenizer of its own.
    keys += [] if request.is_sft or request.is_since((0, 9)) else ["data.trust_remote_code"]
    for key in keys:
        if not request.setting(key):
            what = f"is false, but the classes of model_type {kind} are code beside the model (auto_map)"
            yield about(key, what, f"read that code, then set {key}=True")


def architecture_findings(request: CheckRequest, section: str, values: Mapping[str, Any]) -> Iterator[Finding]:
    """A model of which FSDP would train another class: its architecture decides on that, and otherwise its type."""
    # utils/model.py: get_hf_auto_model_class, which reads the type only of a multimodal model
    (name,) = values["architectures"]
    strategy = request.setting("engine.strategy" if request.is_sft else "actor_rollout_ref.actor.strategy")
    is_other = any(map(values.get, ("auto_map", *TEXT_PARTS))) or request.setting(f"{section}.external_lib")
    is_loaded = strategy in ("fsdp", "fsdp2") and request.is_since((0, 9)) and not is_other
    if is_loaded and not any(part in str(name) for part in PREDICTING):
        what = f"has architecture {name}, which verl loads without the head that predicts tokens"
        yield about("model", what, "use a model with an architecture such as Qwen2ForCausalLM")


def is_known_type(request: CheckRequest, kind: str) -> bool:
    """Whether the job's transformers may know a model type. Read from its text: importing it takes seconds."""
    path = [*filter(None, request.environment.get("PYTHONPATH", "").split(":"))]
    spec = PathFinder.find_spec("transformers", path) or PathFinder.find_spec("transformers")
    files = Path(spec.origin).parent.glob("models/auto/*.py") if spec and spec.origin else ()
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    # A type that all versions know tells whether these are the files that have the types.
    return '"llama"' not in text or f'"{kind}"' in text


def head_findings(request: CheckRequest, model: Configuration) -> Iterator[Finding]:
    """Attention heads that the GPUs of an inference engine cannot share."""
    heads, groups = model.number("num_attention_heads"), max(model.number("num_key_value_heads", 1), 1)
    engine, key = request.setting(f"{ROLLOUT}.name"), f"{ROLLOUT}.tensor_model_parallel_size"
    tensor = max(request.number(key, 1), 1)
    if heads % tensor:
        # vllm/config/model.py: verify_with_parallel_config. SGLang may share them in another way.
        what = f"is {tensor}, which does not divide the model's {heads} attention heads: {engine} refuses it"
        yield about(key, what, f"set it to a divisor of {heads}", ERROR if engine == "vllm" else WARNING)
    elif groups % tensor and tensor % groups and not model.get("kv_lora_rank"):
        # vllm/model_executor/layers/linear.py: QKVParallelLinear, which most models have
        what = f"is {tensor}, and the model has {groups} heads for keys and values: {engine} refuses most such models"
        yield about(key, what, f"set it to a divisor or a multiple of {groups}", WARNING)


def length_findings(request: CheckRequest, model: Configuration) -> Iterator[Finding]:
    """Samples that are longer than what the model has learned."""
    limit, longest, key = model.number("max_position_embeddings"), request.longest_sample, f"{ROLLOUT}.max_model_len"
    own = 0 if request.is_sft else request.number(key)
    # workers/rollout/vllm_rollout/vllm_async_server.py: _validate_configs, generate
    has_limit = not request.is_sft and request.setting(f"{ROLLOUT}.name") in ENGINES and request.is_since((0, 9))
    if has_limit and own > limit > 0:
        yield about(key, f"is {own}, more than the model's max_position_embeddings, {limit}", f"set it to {limit}")
    # Only there, the scaling of rotary embeddings does not count.
    known = limit if has_limit else stretched(limit, model.get("rope_scaling") or model.get("rope_parameters") or {})
    if longest > known > 0 and not own:
        end = "answers end there, and the job ends at a prompt of that length" if has_limit else "the rest is new to it"
        key = "data.max_length" if request.is_sft else "data.max_response_length"
        what = f"allows samples of {longest} tokens, but the model has {known} positions (max_position_embeddings)"
        yield about(key, f"{what}: {end}", f"set lengths of at most {known} together", WARNING)


def stretched(limit: int, rope: Mapping[str, Any]) -> int:
    """The number of positions with the scaling of rotary embeddings."""
    return max(limit, int((rope.get("original_max_position_embeddings") or limit) * (rope.get("factor") or 1)))
