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


def text_configuration(request: CheckRequest, section: str, config_json: Mapping[str, Any]) -> Configuration:
    """The configuration of a model's part for text, with the job's changes. Default values may be missing in it."""
    # workers/config/model.py: HFModelConfig.__post_init__
    changes = request.setting(f"{section}.override_config", {})
    config_json = {**config_json, **changes.get("model_config", changes)}
    for part in TEXT_SECTIONS:
        config_json |= config_json.get(part) or {}
    return Configuration(config_json)


def model_setting_findings(request: CheckRequest, section: str, config_json: Mapping[str, Any]) -> Iterator[Finding]:
    """Findings about settings that do not fit a model. section: of the settings. config_json: the model's."""
    yield from custom_code_findings(request, section, config_json)
    if section == request.model_section:
        yield from architecture_findings(request, section, config_json)
        model = text_configuration(request, section, config_json)
        yield from length_findings(request, model)
        if not request.is_sft and request.setting(f"{ROLLOUT}.name") in ENGINES:
            yield from attention_head_findings(request, model)


def custom_code_findings(request: CheckRequest, section: str, config_json: Mapping[str, Any]) -> Iterator[Finding]:
    """Findings about a model whose classes are not in transformers."""
    model_type = config_json["model_type"]
    # The job's external_lib may register the type. vLLM has the class of deepseek_v4 (workers/config/model.py).
    if model_type == "deepseek_v4" or request.setting(f"{section}.external_lib") or is_known_type(request, model_type):
        return
    if "AutoConfig" not in (config_json.get("auto_map") or {}):
        problem = f"has model_type {model_type}, which transformers in the image does not know"
        yield about("model", problem, "use an image with a version that does (see ray_image), or another model")
        return
    keys = [f"{section}.trust_remote_code"]
    if request.has_critic and request.setting("critic.model.path", request.model_path) == request.model_path:
        keys.append("critic.model.trust_remote_code")
    # Before 0.9, trainer/main_ppo.py has a tokenizer of its own.
    keys += [] if request.is_sft or request.verl_at_least((0, 9)) else ["data.trust_remote_code"]
    for key in keys:
        if not request.setting(key):
            problem = f"is false, but the classes of model_type {model_type} are code beside the model (auto_map)"
            yield about(key, problem, f"read that code, then set {key}=True")


def architecture_findings(request: CheckRequest, section: str, config_json: Mapping[str, Any]) -> Iterator[Finding]:
    """Findings about a model that FSDP would load without the head that predicts tokens."""
    # utils/model.py: get_hf_auto_model_class decides by the architecture; the type counts if it is multimodal.
    (name,) = config_json["architectures"]
    strategy = request.setting("engine.strategy" if request.is_sft else "actor_rollout_ref.actor.strategy")
    other_loader = any(map(config_json.get, ("auto_map", *TEXT_SECTIONS))) or request.setting(f"{section}.external_lib")
    loads_by_architecture = strategy in ("fsdp", "fsdp2") and request.verl_at_least((0, 9)) and not other_loader
    if loads_by_architecture and not any(part in str(name) for part in PREDICTING_ARCHITECTURES):
        problem = f"has architecture {name}, which verl loads without the head that predicts tokens"
        yield about("model", problem, "use a model with an architecture such as Qwen2ForCausalLM")


def is_known_type(request: CheckRequest, model_type: str) -> bool:
    """Whether transformers has a model type; True if its files with the types are missing or have another form."""
    # Importing transformers takes seconds.
    path = [*filter(None, request.environment.get("PYTHONPATH", "").split(":"))]
    spec = PathFinder.find_spec("transformers", path) or PathFinder.find_spec("transformers")
    files = Path(spec.origin).parent.glob("models/auto/*.py") if spec and spec.origin else ()
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    # "llama" is in all versions; without it, these are not the files that list the types.
    return '"llama"' not in text or f'"{model_type}"' in text


def attention_head_findings(request: CheckRequest, model: Configuration) -> Iterator[Finding]:
    """Findings about attention heads that the GPUs of an inference engine cannot share."""
    heads, kv_heads = model.number("num_attention_heads"), max(model.number("num_key_value_heads", 1), 1)
    engine, key = request.setting(f"{ROLLOUT}.name"), f"{ROLLOUT}.tensor_model_parallel_size"
    tp = max(request.number(key, 1), 1)
    if heads % tp:
        # vllm/config/model.py: verify_with_parallel_config. SGLang may share them in another way.
        text = f"is {tp}, which does not divide the model's {heads} attention heads: {engine} refuses it"
        yield about(key, text, f"set it to a divisor of {heads}", ERROR if engine == "vllm" else WARNING)
    elif kv_heads % tp and tp % kv_heads and not model.get("kv_lora_rank"):
        # vllm/model_executor/layers/linear.py: QKVParallelLinear, which most models have
        text = f"is {tp}, and the model has {kv_heads} heads for keys and values: {engine} refuses most such models"
        yield about(key, text, f"set it to a divisor or a multiple of {kv_heads}", WARNING)


def length_findings(request: CheckRequest, model: Configuration) -> Iterator[Finding]:
    """Findings about samples that are longer than the model's context."""
    max_positions, longest = model.number("max_position_embeddings"), request.max_sequence_length
    key = f"{ROLLOUT}.max_model_len"
    max_model_len = 0 if request.is_sft else request.number(key)
    # The engine's own limit: workers/rollout/vllm_rollout/vllm_async_server.py: _validate_configs, generate
    engine = "" if request.is_sft else request.setting(f"{ROLLOUT}.name")
    is_limited = engine in ENGINES and request.verl_at_least((0, 9))
    if is_limited and max_model_len > max_positions > 0:
        problem = f"is {max_model_len}, more than the model's max_position_embeddings, {max_positions}"
        yield about(key, problem, f"set it to {max_positions}")
    # SchedulerConfig.verify_max_model_len of vLLM refuses it. verl 0.9.1 fails before, as it sets the tokens itself.
    tokens, context = request.number(f"{ROLLOUT}.max_num_batched_tokens"), max_model_len or max_positions
    takes_whole_prompts = engine == "vllm" and request.setting(f"{ROLLOUT}.enable_chunked_prefill") is False
    if is_limited and takes_whole_prompts and 0 < tokens < context:
        problem = f"is {tokens}, but without enable_chunked_prefill vLLM needs {context}, the longest prompt it may get"
        remedy = f"set it to {context}, lower {key}, or leave enable_chunked_prefill on"
        yield about(f"{ROLLOUT}.max_num_batched_tokens", problem, remedy)
    # Only inference engines ignore the scaling of rotary embeddings.
    scaling = model.get("rope_scaling") or model.get("rope_parameters") or {}
    usable = max_positions if is_limited else scaled_positions(max_positions, scaling)
    if longest > usable > 0 and not max_model_len:
        end = "answers end there, and a prompt of that length ends the job" if is_limited else "it never saw the rest"
        key = "data.max_length" if request.is_sft else "data.max_response_length"
        problem = f"allows samples of {longest} tokens, but the model has {usable} positions (max_position_embeddings)"
        yield about(key, f"{problem}: {end}", f"set lengths of at most {usable} together", WARNING)


def scaled_positions(limit: int, rope: Mapping[str, Any]) -> int:
    """The number of positions that a model has with the scaling of its rotary embeddings."""
    return max(limit, int((rope.get("original_max_position_embeddings") or limit) * (rope.get("factor") or 1)))
