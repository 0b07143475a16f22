from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from checked_job import found, version

ROLLOUT, LENGTH = "actor_rollout_ref.rollout", "data.max_response_length"
TENSOR, MODEL_LENGTH = f"{ROLLOUT}.tensor_model_parallel_size", f"{ROLLOUT}.max_model_len"
VLLM = {f"{ROLLOUT}.name": "vllm"}
HEADS = {"num_attention_heads": 28, "num_key_value_heads": 4}


def keys(root: Path, config: dict[str, Any], settings: dict[str, Any], workload: str = "grpo") -> list[tuple[str, str]]:
    """Keys and severities of the findings about a model with this configuration."""
    values = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], **config}
    (root / "common/models/tiny/config.json").write_text(json.dumps(values))
    version(root, "0.9.1")
    return [(key, severity) for key, _what, severity in found(root, settings=settings, workload=workload)]


@pytest.mark.parametrize(
    ("config", "tensor", "engine", "severity"),
    [
        (HEADS, 8, "vllm", "error"),
        ({"text_config": HEADS}, 8, "vllm", "error"),
        (HEADS, 8, "sglang", "warning"),
        (HEADS, 8, "hf_cpu", ""),
        (HEADS, 4, "vllm", ""),
        (HEADS, 28, "vllm", ""),
        (HEADS, 14, "vllm", "warning"),
        ({**HEADS, "kv_lora_rank": 512}, 14, "vllm", ""),
        ({**HEADS, "num_key_value_heads": 0}, 28, "vllm", ""),
        ({}, 8, "vllm", ""),
    ],
)
def test_heads(root: Path, config: dict[str, Any], tensor: int, engine: str, severity: str) -> None:
    settings = {f"{ROLLOUT}.name": engine, TENSOR: tensor}
    assert keys(root, config, settings) == ([(TENSOR, severity)] if severity else [])


@pytest.mark.parametrize(
    ("config", "settings", "is_refused"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, {}, True),
        ({"architectures": ["Qwen2Model"]}, {}, True),
        # The class is that of the type; nothing looks for this name.
        ({"architectures": ["NewForCausalLM"]}, {}, False),
        ({"architectures": ["Qwen2VLModel"], "text_config": HEADS}, {}, False),
        ({"architectures": ["GPT2LMHeadModel"]}, {"actor_rollout_ref.actor.strategy": "torchtitan"}, False),
    ],
)
def test_the_class_that_fsdp_trains(
    root: Path, config: dict[str, Any], settings: dict[str, Any], is_refused: bool
) -> None:
    found = keys(root, config, {"actor_rollout_ref.actor.strategy": "fsdp", **settings})
    assert found == ([("model", "error")] if is_refused else [])


YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}


@pytest.mark.parametrize(
    ("config", "settings", "expected"),
    [
        ({}, {LENGTH: 600}, [(LENGTH, "warning")]),
        ({}, {LENGTH: 412}, []),
        ({}, {**VLLM, LENGTH: 600}, [(LENGTH, "warning")]),
        ({}, {**VLLM, LENGTH: 600, MODEL_LENGTH: 1024}, [(MODEL_LENGTH, "error")]),
        ({}, {**VLLM, LENGTH: 600, MODEL_LENGTH: 512}, []),
        ({}, {LENGTH: 600, "actor_rollout_ref.model.override_config.max_position_embeddings": 1024}, []),
        ({"rope_scaling": YARN}, {LENGTH: 1900}, []),
        ({"rope_scaling": YARN}, {LENGTH: 2000}, [(LENGTH, "warning")]),
        # verl compares with max_position_embeddings alone.
        ({"rope_scaling": YARN}, {**VLLM, LENGTH: 600, MODEL_LENGTH: 1024}, [(MODEL_LENGTH, "error")]),
        ({"max_position_embeddings": None}, {LENGTH: 100_000}, []),
    ],
)
def test_lengths(root: Path, config: dict[str, Any], settings: dict[str, Any], expected: Any) -> None:
    settings = {"data.max_prompt_length": 100, **settings}
    assert keys(root, {"max_position_embeddings": 512, **config}, settings) == expected


def test_the_length_of_conversations(root: Path) -> None:
    assert keys(root, {"max_position_embeddings": 512}, {"data.max_length": 1024}, "sft") == [
        ("data.max_length", "warning")
    ]


OWN_CODE = {"model_type": "mine", "auto_map": {"AutoConfig": "configuration.Mine"}}
TRUST, CRITIC = "actor_rollout_ref.model.trust_remote_code", "critic.model.trust_remote_code"


@pytest.mark.parametrize(
    ("config", "workload", "settings", "expected"),
    [
        ({"model_type": "mine"}, "grpo", {}, ["model"]),
        ({"model_type": "mine"}, "grpo", {"actor_rollout_ref.model.external_lib": "mine"}, []),
        ({"auto_map": OWN_CODE["auto_map"]}, "grpo", {}, []),
        (OWN_CODE, "ppo", {}, [TRUST, CRITIC]),
        (OWN_CODE, "ppo", {CRITIC: True}, [TRUST]),
        (OWN_CODE, "grpo", {TRUST: True}, []),
        (OWN_CODE, "sft", {}, ["model.trust_remote_code"]),
    ],
)
def test_model_types(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    config: dict[str, Any],
    workload: str,
    settings: dict[str, Any],
    expected: list[str],
) -> None:
    auto = tmp_path / "lib/transformers/models/auto"
    auto.mkdir(parents=True)
    (tmp_path / "lib/transformers/__init__.py").touch()
    (auto / "auto_mappings.py").write_text('("llama", "LlamaConfig"), ("qwen2", "Qwen2Config")')
    monkeypatch.syspath_prepend(tmp_path / "lib")
    assert keys(root, config, settings, workload) == [(key, "error") for key in expected]
