# SPDX-License-Identifier: Apache-2.0
"""Checks settings of the job against the model's config.json: parallel sizes, lengths, and custom code.

Comments name sources, files below verl/ in 0.9.1 unless they say so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from ..common.findings import ERROR, WARNING, Finding, about
from .request import CheckRequest, Configuration

ROLLOUT = "actor_rollout_ref.rollout"
ENGINES = ("vllm", "sglang")
# The sections of config.json with the part of a multimodal model that reads and writes text.
TEXT_SECTIONS = ("thinker_config", "text_config", "llm_config", "language_config")
# One of these is in the name of each architecture that predicts tokens.
PREDICTING_ARCHITECTURES = ("ForCausalLM", "ForConditionalGeneration", "ForVision2Seq", "Text2Text")


def text_model(request: CheckRequest, section: str, values: Mapping[str, Any]) -> Configuration:
    """A config.json with the job's changes and a multimodal model's values for text; it lacks default values."""
    # workers/config/model.py: HFModelConfig.__post_init__
    changes = request.setting(f"{section}.override_config", {})
    values = {**values, **changes.get("model_config", changes)}
    for part in TEXT_SECTIONS:
        values |= values.get(part) or {}
    return Configuration(values)


def model_setting_findings(request: CheckRequest, section: str, values: Mapping[str, Any]) -> Iterator[Finding]:
    """Findings about settings that do not fit a model. section: of these settings. values: its config.json."""
    yield from custom_code_findings(request, section, values)
    if section == request.model_section:
        yield from architecture_findings(request, section, values)
        model = text_model(request, section, values)
        yield from length_findings(request, model)
        if not request.is_sft and request.setting(f"{ROLLOUT}.name") in ENGINES:
            yield from attention_head_findings(request, model)


def custom_code_findings(request: CheckRequest, section: str, values: Mapping[str, Any]) -> Iterator[Finding]:
    """Findings about a model whose classes are not in transformers."""
    kind = values["model_type"]
    # A library of the job may add the type; of deepseek_v4, vLLM has the class (workers/config/model.py).
    if kind == "deepseek_v4" or request.setting(f"{section}.external_lib") or is_known_type(request, kind):
        return
    if "AutoConfig" not in (values.get("auto_map") or {}):
        problem = f"has model_type {kind}, which transformers in the image does not know"
        yield about("model", problem, "use an image with a version that does (see ray_image), or another model")
        return
    keys = [f"{section}.trust_remote_code"]
    if request.has_critic and request.setting("critic.model.path", request.model_path) == request.model_path:
        keys.append("critic.model.trust_remote_code")
    # Before 0.9, trainer/main_ppo.py has a tokenizer of its own.
    keys += [] if request.is_sft or request.verl_at_least((0, 9)) else ["data.trust_remote_code"]
    for key in keys:
        if not request.setting(key):
            problem = f"is false, but the classes of model_type {kind} are code beside the model (auto_map)"
            yield about(key, problem, f"read that code, then set {key}=True")


def architecture_findings(request: CheckRequest, section: str, values: Mapping[str, Any]) -> Iterator[Finding]:
    """Findings about a model that FSDP would load without the head that predicts tokens."""
    # utils/model.py: get_hf_auto_model_class decides by the architecture; the type counts if it is multimodal.
    (name,) = values["architectures"]
    strategy = request.setting("engine.strategy" if request.is_sft else "actor_rollout_ref.actor.strategy")
    is_other = any(map(values.get, ("auto_map", *TEXT_SECTIONS))) or request.setting(f"{section}.external_lib")
    is_loaded = strategy in ("fsdp", "fsdp2") and request.verl_at_least((0, 9)) and not is_other
    if is_loaded and not any(part in str(name) for part in PREDICTING_ARCHITECTURES):
        problem = f"has architecture {name}, which verl loads without the head that predicts tokens"
        yield about("model", problem, "use a model with an architecture such as Qwen2ForCausalLM")


def is_known_type(request: CheckRequest, kind: str) -> bool:
    """Whether the job's version of transformers may know a model type."""
    # Importing transformers takes seconds.
    path = [*filter(None, request.environment.get("PYTHONPATH", "").split(":"))]
    spec = PathFinder.find_spec("transformers", path) or PathFinder.find_spec("transformers")
    files = Path(spec.origin).parent.glob("models/auto/*.py") if spec and spec.origin else ()
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    # "llama" is in all versions; without it, these are not the files that list the types.
    return '"llama"' not in text or f'"{kind}"' in text


def attention_head_findings(request: CheckRequest, model: Configuration) -> Iterator[Finding]:
    """Findings about attention heads that the GPUs of an inference engine cannot share."""
    heads, groups = model.number("num_attention_heads"), max(model.number("num_key_value_heads", 1), 1)
    engine, key = request.setting(f"{ROLLOUT}.name"), f"{ROLLOUT}.tensor_model_parallel_size"
    tensor = max(request.number(key, 1), 1)
    if heads % tensor:
        # vllm/config/model.py: verify_with_parallel_config. SGLang may share them in another way.
        text = f"is {tensor}, which does not divide the model's {heads} attention heads: {engine} refuses it"
        yield about(key, text, f"set it to a divisor of {heads}", ERROR if engine == "vllm" else WARNING)
    elif groups % tensor and tensor % groups and not model.get("kv_lora_rank"):
        # vllm/model_executor/layers/linear.py: QKVParallelLinear, which most models have
        text = f"is {tensor}, and the model has {groups} heads for keys and values: {engine} refuses most such models"
        yield about(key, text, f"set it to a divisor or a multiple of {groups}", WARNING)


def length_findings(request: CheckRequest, model: Configuration) -> Iterator[Finding]:
    """Findings about samples that are longer than the model's context."""
    limit, longest = model.number("max_position_embeddings"), request.max_sequence_length
    key = f"{ROLLOUT}.max_model_len"
    max_len = 0 if request.is_sft else request.number(key)
    # workers/rollout/vllm_rollout/vllm_async_server.py: _validate_configs, generate
    has_limit = not request.is_sft and request.setting(f"{ROLLOUT}.name") in ENGINES and request.verl_at_least((0, 9))
    if has_limit and max_len > limit > 0:
        yield about(key, f"is {max_len}, more than the model's max_position_embeddings, {limit}", f"set it to {limit}")
    # Only inference engines ignore the scaling of rotary embeddings.
    scaling = model.get("rope_scaling") or model.get("rope_parameters") or {}
    length = limit if has_limit else scaled_positions(limit, scaling)
    if longest > length > 0 and not max_len:
        end = "answers end there, and the job ends at a prompt of that length" if has_limit else "the rest is new to it"
        key = "data.max_length" if request.is_sft else "data.max_response_length"
        problem = f"allows samples of {longest} tokens, but the model has {length} positions (max_position_embeddings)"
        yield about(key, f"{problem}: {end}", f"set lengths of at most {length} together", WARNING)


def scaled_positions(limit: int, rope: Mapping[str, Any]) -> int:
    """The number of positions that a model has with the scaling of its rotary embeddings."""
    return max(limit, int((rope.get("original_max_position_embeddings") or limit) * (rope.get("factor") or 1)))
