from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from checked_job import LFS, facts, findings_of, keys, safetensors, version


@pytest.fixture
def model(root: Path) -> Path:
    return root / "common/models/tiny"


def torch_file() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("data", "x" * 1000)
    return content.getvalue()


CONFIG, TOKENIZER, SETTINGS = "config.json", "tokenizer.json", "tokenizer_config.json"
SAFETENSORS, INDEX, TORCH = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({CONFIG: None}, "config.json does not exist"),
        ({CONFIG: None, "adapter_config.json": "{}"}, "is a LoRA adapter"),
        ({CONFIG: LFS}, "config.json is a Git LFS pointer"),
        ({CONFIG: "{"}, "config.json cannot be read as JSON"),
        ({CONFIG: '{"architectures": ["A"]}'}, "has no model_type"),
        ({CONFIG: '{"model_type": "a"}'}, "architectures null"),
        ({CONFIG: '{"model_type": "a", "architectures": ["A", "B"]}'}, 'architectures ["A", "B"]'),
        ({TOKENIZER: None}, "has no tokenizer"),
        ({TOKENIZER: None, "vocab.json": "{}"}, ""),
        ({TOKENIZER: LFS}, "tokenizer.json is a Git LFS pointer"),
        ({TOKENIZER: '{"model": {"vocab": {"a": 1'}, "tokenizer.json is truncated"),
        ({SETTINGS: "{}}\n"}, "tokenizer_config.json cannot be read as JSON"),
        ({SETTINGS: "{}", "chat_template.jinja": "{{ messages }}"}, ""),
        ({SAFETENSORS: None}, "has no weights"),
        ({SAFETENSORS: "<!DOCTYPE html>"}, "has no safetensors header (15 bytes)"),
        ({SAFETENSORS: LFS}, "model.safetensors is a Git LFS pointer"),
        ({SAFETENSORS: None, INDEX: '{"metadata": {}}'}, "is not an index of weights: KeyError"),
        ({SAFETENSORS: None, TORCH: torch_file()}, ""),
        ({SAFETENSORS: None, TORCH: torch_file()[:-30]}, "pytorch_model.bin is truncated"),
        # torch.save before 1.6 wrote no archive.
        ({SAFETENSORS: None, TORCH: b"\x80\x02" + bytes(100)}, ""),
    ],
)
def test_files_of_a_model(root: Path, model: Path, files: Mapping[str, str | bytes | None], problem: str) -> None:
    for name, content in files.items():
        if content is None:
            (model / name).unlink()
        else:
            (model / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    findings = findings_of(root)
    assert [(key, severity) for key, _text, severity in findings] == ([("model", "error")] if problem else [])
    assert all(problem in text for _key, text, _severity in findings)


def test_weights_of_another_size(root: Path, model: Path) -> None:
    content = (model / SAFETENSORS).read_bytes()
    for changed in (content[:-8], content + b"x", content[:100]):
        (model / SAFETENSORS).write_bytes(changed)
        assert keys(root) == [("model", "error")]


def test_shards_are_counted(root: Path, model: Path) -> None:
    (model / SAFETENSORS).unlink()
    for number in range(5):
        safetensors(model / f"model-{number}.safetensors", (str(number),))
    shards = {f"model-{number}.safetensors": f"model-{number}.safetensors" for number in range(5)}
    (model / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": shards}))
    assert (findings_of(root), facts(root)["parameters"]) == ([], 60)
    (model / "model-4.safetensors").unlink()
    assert "1 of 5 shards in /private/common/models/tiny are missing: model-4" in findings_of(root)[0][1]
    for name in (INDEX, *(f"model-{number}.safetensors" for number in range(4))):
        (model / name).unlink()
    (model / TORCH).write_bytes(torch_file())
    assert facts(root)["parameters"] == len(torch_file()) // 2


def test_a_chat_template_and_a_tokenizer_elsewhere(root: Path, model: Path) -> None:
    (model / SETTINGS).write_text("{}")
    assert keys(root) == [("model", "warning")]
    assert keys(root, settings={"actor_rollout_ref.model.custom_chat_template": "{{ messages }}"}) == []
    (root / "common/models/tokenizer").mkdir()
    (model / TOKENIZER).rename(root / "common/models/tokenizer" / TOKENIZER)
    (root / "common/models/tokenizer" / SETTINGS).write_text('{"chat_template": "x"}')
    assert keys(root, settings={"actor_rollout_ref.model.tokenizer_path": f"{root}/common/models/tokenizer"}) == []


def test_a_critic_of_its_own(root: Path, model: Path) -> None:
    critic = root / "common/models/critic"
    settings = {"critic.model.path": str(critic)}
    assert findings_of(root, settings=settings) == []
    critic.mkdir()
    key = ("trainer_overrides.critic.model.path", "error")
    assert keys(root, workload="ppo", settings=settings) == [key, key]
    (critic / CONFIG).write_bytes((model / CONFIG).read_bytes())
    safetensors(critic / SAFETENSORS, ("a",))
    values = facts(root, workload="ppo", settings=settings)
    assert (values["parameters"], values["critic_parameters"]) == (24, 12)
    assert "critic_parameters" not in facts(root, settings=settings)
    # What is wrong with a model that is also the critic is reported once.
    (model / SAFETENSORS).unlink()
    assert len(findings_of(root, workload="ppo")) == 1


def test_another_model_by_an_override(root: Path) -> None:
    key = "actor_rollout_ref.model.path"
    findings = keys(root, settings={key: f"{root}/common/models/other"})
    assert {name for name, _severity in findings} == {f"trainer_overrides.{key}"}
    assert findings_of(root, settings={key: "Qwen/Qwen2.5-7B"}) == []


# --- Settings of the job that its config.json contradicts -------------------------------------------------------------

ROLLOUT, LENGTH = "actor_rollout_ref.rollout", "data.max_response_length"
TENSOR, MODEL_LENGTH = f"{ROLLOUT}.tensor_model_parallel_size", f"{ROLLOUT}.max_model_len"
VLLM, WHOLE_PROMPTS = {f"{ROLLOUT}.name": "vllm"}, {f"{ROLLOUT}.enable_chunked_prefill": False}
TOKENS = f"{ROLLOUT}.max_num_batched_tokens"
HEADS = {"num_attention_heads": 28, "num_key_value_heads": 4}
FSDP = {"actor_rollout_ref.actor.strategy": "fsdp"}
POSITIONS = {"max_position_embeddings": 512}
YARN = {**POSITIONS, "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}}
OTHER_CODE = {"model_type": "mine", "auto_map": {"AutoConfig": "configuration.Mine"}}
TRUST, CRITIC = "actor_rollout_ref.model.trust_remote_code", "critic.model.trust_remote_code"


@pytest.mark.parametrize(
    ("config", "settings", "expected"),
    [
        (HEADS, {**VLLM, TENSOR: 8}, [(TENSOR, "error")]),
        ({"text_config": HEADS}, {**VLLM, TENSOR: 8}, [(TENSOR, "error")]),
        (HEADS, {f"{ROLLOUT}.name": "sglang", TENSOR: 8}, [(TENSOR, "warning")]),
        (HEADS, {f"{ROLLOUT}.name": "hf_cpu", TENSOR: 8}, []),
        (HEADS, {**VLLM, TENSOR: 4}, []),
        (HEADS, {**VLLM, TENSOR: 28}, []),
        (HEADS, {**VLLM, TENSOR: 14}, [(TENSOR, "warning")]),
        ({**HEADS, "kv_lora_rank": 512}, {**VLLM, TENSOR: 14}, []),
        ({**HEADS, "num_key_value_heads": 0}, {**VLLM, TENSOR: 28}, []),
        ({"architectures": ["GPT2LMHeadModel"]}, FSDP, [("model", "error")]),
        # The class is that of the type; nothing looks for this name.
        ({"architectures": ["NewForCausalLM"]}, FSDP, []),
        ({"architectures": ["Qwen2VLModel"], "text_config": HEADS}, FSDP, []),
        ({"architectures": ["GPT2LMHeadModel"]}, {"actor_rollout_ref.actor.strategy": "torchtitan"}, []),
        (POSITIONS, {LENGTH: 413}, [(LENGTH, "warning")]),
        (POSITIONS, {LENGTH: 412}, []),
        (POSITIONS, {**VLLM, LENGTH: 600}, [(LENGTH, "warning")]),
        (POSITIONS, {**VLLM, LENGTH: 600, MODEL_LENGTH: 513}, [(MODEL_LENGTH, "error")]),
        (POSITIONS, {**VLLM, LENGTH: 600, MODEL_LENGTH: 512}, []),
        (POSITIONS, {LENGTH: 600, "actor_rollout_ref.model.override_config.max_position_embeddings": 1024}, []),
        (YARN, {LENGTH: 1900}, []),
        (YARN, {LENGTH: 2000}, [(LENGTH, "warning")]),
        (POSITIONS, {**VLLM, **WHOLE_PROMPTS, TOKENS: 511}, [(TOKENS, "error")]),
        (POSITIONS, {**VLLM, **WHOLE_PROMPTS, TOKENS: 256, MODEL_LENGTH: 256}, []),
        (POSITIONS, {**VLLM, TOKENS: 256}, []),
        # verl compares with max_position_embeddings alone.
        (YARN, {**VLLM, LENGTH: 600, MODEL_LENGTH: 1024}, [(MODEL_LENGTH, "error")]),
        (POSITIONS, {"workload": "sft", "data.max_length": 1024}, [("data.max_length", "warning")]),
        ({"model_type": "mine"}, {}, [("model", "error")]),
        ({"model_type": "mine"}, {"actor_rollout_ref.model.external_lib": "mine"}, []),
        ({"auto_map": OTHER_CODE["auto_map"]}, {}, []),
        (OTHER_CODE, {"workload": "ppo"}, [(TRUST, "error"), (CRITIC, "error")]),
        (OTHER_CODE, {"workload": "ppo", CRITIC: True}, [(TRUST, "error")]),
        (OTHER_CODE, {TRUST: True}, []),
        (OTHER_CODE, {"workload": "sft"}, [("model.trust_remote_code", "error")]),
    ],
)
def test_settings_that_a_model_contradicts(
    root: Path,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    config: Mapping[str, Any],
    settings: dict[str, Any],
    expected: list[tuple[str, str]],
) -> None:
    auto = root / "lib/transformers/models/auto"
    auto.mkdir(parents=True)
    (root / "lib/transformers/__init__.py").touch()
    (auto / "auto_mappings.py").write_text('("llama", "LlamaConfig"), ("qwen2", "Qwen2Config")')
    monkeypatch.syspath_prepend(root / "lib")
    values = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], **config}
    (model / CONFIG).write_text(json.dumps(values))
    version(root, "0.9.1")
    job_settings = {"data.max_prompt_length": 100, **settings}
    assert keys(root, workload=job_settings.pop("workload", "grpo"), settings=job_settings) == expected
