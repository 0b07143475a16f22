# SPDX-License-Identifier: Apache-2.0
"""Checks of the model: its files, and settings of the job that its config.json contradicts."""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from ..common.findings import ERROR, WARNING, Finding, about
from ..common.text import size_text
from .common import DTYPE_BYTES, CheckRequest, Configuration, Facts, error_text, is_lfs_pointer, lfs_pointer_problem

# Settings of the job that the model's config.json contradicts: parallel sizes, lengths, and code of its own.
#
# Sources are files below verl/ in 0.9.1, unless comments say so.

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
    """Findings about a model that FSDP would load as another class: the architecture decides, otherwise the type."""
    # utils/model.py: get_hf_auto_model_class, which reads the type only of a multimodal model
    (name,) = values["architectures"]
    strategy = request.setting("engine.strategy" if request.is_sft else "actor_rollout_ref.actor.strategy")
    is_other = any(map(values.get, ("auto_map", *TEXT_PARTS))) or request.setting(f"{section}.external_lib")
    is_loaded = strategy in ("fsdp", "fsdp2") and request.verl_at_least((0, 9)) and not is_other
    if is_loaded and not any(part in str(name) for part in PREDICTING):
        problem = f"has architecture {name}, which verl loads without the head that predicts tokens"
        yield about("model", problem, "use a model with an architecture such as Qwen2ForCausalLM")


def is_known_type(request: CheckRequest, kind: str) -> bool:
    """Whether the job's transformers may know a model type. Read from its text: importing it takes seconds."""
    path = [*filter(None, request.environment.get("PYTHONPATH", "").split(":"))]
    spec = PathFinder.find_spec("transformers", path) or PathFinder.find_spec("transformers")
    files = Path(spec.origin).parent.glob("models/auto/*.py") if spec and spec.origin else ()
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    # "llama" is in all versions; without it, these are not the files that list the types.
    return '"llama"' not in text or f'"{kind}"' in text


def head_findings(request: CheckRequest, model: Configuration) -> Iterator[Finding]:
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
    length = limit if has_limit else rope_limit(limit, model.get("rope_scaling") or model.get("rope_parameters") or {})
    if longest > length > 0 and not max_len:
        end = "answers end there, and the job ends at a prompt of that length" if has_limit else "the rest is new to it"
        key = "data.max_length" if request.is_sft else "data.max_response_length"
        problem = f"allows samples of {longest} tokens, but the model has {length} positions (max_position_embeddings)"
        yield about(key, f"{problem}: {end}", f"set lengths of at most {length} together", WARNING)


def rope_limit(limit: int, rope: Mapping[str, Any]) -> int:
    """The number of positions with the scaling of rotary embeddings."""
    return max(limit, int((rope.get("original_max_position_embeddings") or limit) * (rope.get("factor") or 1)))


# Checks of the model: its configuration, its tokenizer, and its weights by their headers and sizes.

# The format's own limit of a header.
MAX_SAFETENSORS_HEADER_BYTES = 100_000_000
# In the order in which transformers looks for them.
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
VOCABULARIES = ("vocab*", "*.model", "*.tiktoken", "merges.txt", "tekken.json")
CHAT_TEMPLATES = ("chat_template.jinja", "chat_template.json")
STAGE_AGAIN = "stage the model again"
TRUNCATED = f"{STAGE_AGAIN}: the download may be incomplete"
TRANSFORMERS = f"{STAGE_AGAIN}, in the format of Transformers"


@dataclass(frozen=True)
class ModelRef:
    """A model, or a part of one, and the key that names it."""

    path: Path
    where: str
    key: str

    def finding(self, problem: str, remedy: str, severity: str = "error") -> Finding:
        return Finding(self.where, problem, remedy, severity, key=self.key)

    def pointer(self, path: Path) -> Finding:
        return self.finding(*lfs_pointer_problem(path))


@dataclass(frozen=True)
class Weights:
    """Problems with weights, their size in bytes, and the number of parameters; None if that is unknown."""

    findings: tuple[Finding, ...] = ()
    size: int = 0
    parameters: int | None = None


def model_ref(key: str, path: str) -> ModelRef:
    """A model that an override names."""
    return ModelRef(Path(path), f"trainer_overrides: {key}", f"trainer_overrides.{key}")


def model_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    section, model = request.model_section, request.model_path
    # A name on the hub is resolved in HF_HOME, by rules of its own.
    if not model.startswith("/") or (request.is_outside_shared_root(model) and not Path(model).exists()):
        return []
    source = ModelRef(Path(model), "model", "model") if model == request.model else model_ref(f"{section}.path", model)
    findings = config_findings(request, facts, source, section)
    if not source.path.is_dir():
        return findings
    weights = weights_of(source)
    findings += weights.findings
    facts.model_bytes, facts.parameters = weights.size, weights.parameters
    if request.tokenizer_path.startswith("/"):
        template, path = f"{section}.custom_chat_template", Path(request.tokenizer_path)
        findings += tokenizer_findings(source, path, template, has_template=bool(request.setting(template)))
    return findings + (critic_findings(request, facts, model) if request.has_critic else [])


def critic_findings(request: CheckRequest, facts: Facts, model: str) -> list[Finding]:
    """Problems with a critic that is not the model itself."""
    critic = str(request.setting("critic.model.path", model))
    facts.critic_parameters = facts.parameters
    if critic == model or not critic.startswith("/"):
        return []
    source = model_ref("critic.model.path", critic)
    weights = weights_of(source)
    facts.critic_parameters = weights.parameters
    return [*config_findings(request, Facts(), source, "critic.model"), *weights.findings]


def hub_snapshots(path: Path) -> list[Path]:
    """The commits in the hub's cache of a repository, that of its branch main first; empty for another directory."""
    if not path.name.startswith("models--"):
        return []
    commits = sorted((path / "snapshots").glob("*"))
    main, name = path / "refs" / "main", b""
    if main.is_file():
        with main.open("rb") as file:
            name = file.read(64).strip()
    return sorted(commits, key=lambda commit: commit.name.encode() != name)


def config_findings(request: CheckRequest, facts: Facts, source: ModelRef, section: str) -> list[Finding]:
    config, problems = read_config(source)
    if problems:
        return problems
    facts.vocab_size = text_model(request, section, config).number("vocab_size") or None
    return list(setting_findings(request, section, config))


def read_config(source: ModelRef) -> tuple[dict[str, Any], list[Finding]]:
    """The model's config.json, and findings about it."""
    path = source.path / "config.json"
    try:
        if is_lfs_pointer(path):
            return {}, [source.pointer(path)]
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if (source.path / "adapter_config.json").is_file():
            remedy = "give the base model, and set actor_rollout_ref.model.lora_adapter_path to the adapter"
            return {}, [source.finding(f"{source.path} is a LoRA adapter, not a model", remedy)]
        remedy = "give the directory with config.json and the weights"
        if commits := hub_snapshots(source.path):
            remedy = f"it is a cache of the hub: give {' or '.join(map(str, commits))}"
        return {}, [source.finding(f"{path} does not exist", remedy)]
    except (OSError, ValueError) as error:
        return {}, [source.finding(f"{path} cannot be read as JSON: {error_text(error)}", STAGE_AGAIN)]
    if not isinstance(config, dict) or not config.get("model_type"):
        return {}, [source.finding(f"{path} has no model_type", TRANSFORMERS)]
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or len(architectures) != 1:
        # workers/config/model.py: HFModelConfig asserts it.
        problem = f"{path} has architectures {json.dumps(architectures)}, but verl requires exactly one"
        return {}, [source.finding(problem, TRANSFORMERS)]
    return config, []


def tokenizer_findings(source: ModelRef, path: Path, template: str, *, has_template: bool) -> list[Finding]:
    """Problems with the tokenizer at `path`. `template` is the setting for a chat template of the job's own."""
    tokenizer, settings = path / "tokenizer.json", path / "tokenizer_config.json"
    for file in (tokenizer, settings):
        if file.is_file() and is_lfs_pointer(file):
            return [source.pointer(file)]
        # tokenizer.json may have 30 MB, so only its end is read.
        if file.is_file() and not ends_as_mapping(file):
            return [source.finding(f"{file} is truncated", STAGE_AGAIN)]
    vocabulary = any(any(path.glob(pattern)) for pattern in VOCABULARIES)
    if not tokenizer.is_file() and not (settings.is_file() and vocabulary):
        problem = f"{path} has no tokenizer: neither tokenizer.json, nor tokenizer_config.json with a vocabulary"
        return [source.finding(problem, "stage the tokenizer's files beside the weights")]
    try:
        config = json.loads(settings.read_text(encoding="utf-8")) if settings.is_file() else {}
    except (OSError, ValueError) as error:
        return [source.finding(f"{settings} cannot be read as JSON: {error_text(error)}", STAGE_AGAIN)]
    if has_template or config.get("chat_template") or any((path / name).is_file() for name in CHAT_TEMPLATES):
        return []
    problem = f"{path} has no chat template, but verl applies one to every row"
    remedy = f"add chat_template.jinja (instruct models have one), or set {template}"
    return [source.finding(problem, remedy, WARNING)]


def ends_as_mapping(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 64))
        return file.read().rstrip().endswith(b"}")


def weights_of(source: ModelRef) -> Weights:
    model = source.path
    name = next((name for name in WEIGHTS if (model / name).is_file()), None)
    if name is None:
        problem = f"{model} has no weights: neither model.safetensors nor pytorch_model.bin, and no index of either"
        return Weights((source.finding(problem, "give a directory with weights, in the format of save_pretrained"),))
    shards = [name]
    if name.endswith(".index.json"):
        try:
            if is_lfs_pointer(model / name):
                return Weights((source.pointer(model / name),))
            shards = sorted(set(json.loads((model / name).read_text(encoding="utf-8"))["weight_map"].values()))
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            problem = f"{model / name} is not an index of weights: {type(error).__name__}: {error_text(error)}"
            return Weights((source.finding(problem, TRUNCATED),))
    missing = [shard for shard in shards if not (model / shard).is_file()]
    if missing:
        problem = f"{len(missing)} of {len(shards)} shards in {model} are missing: {', '.join(missing[:3])}"
        return Weights((source.finding(problem + (", …" if len(missing) > 3 else ""), TRUNCATED),))
    findings: list[Finding] = []
    size = parameters = 0
    for path in [model / shard for shard in shards]:
        size += path.stat().st_size
        if is_lfs_pointer(path):
            findings.append(source.pointer(path))
        elif path.suffix == ".safetensors":
            defect, count = safetensors_problem(path)
            parameters += count
            findings += [source.finding(f"{path} {defect}", TRUNCATED)] if defect else []
        elif torch_file_is_cut(path):
            findings.append(source.finding(f"{path} is truncated", TRUNCATED))
    if not all(shard.endswith(".safetensors") for shard in shards):
        parameters = size // DTYPE_BYTES.get(declared_dtype(model), 2)
    return Weights(tuple(findings), size, None if findings else parameters)


def safetensors_problem(path: Path) -> tuple[str | None, int]:
    """The problem with a file, judged by its header and size alone, and the number of its parameters."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > MAX_SAFETENSORS_HEADER_BYTES:
            return f"has no safetensors header ({size_text(size)})", 0
        if size < 8 + length:
            return f"has {size} bytes, but its header alone has {8 + length}: it is truncated", 0
        try:
            header = json.loads(file.read(length))
            tensors = [tensor for name, tensor in header.items() if name != "__metadata__"]
            expected = 8 + length + max((tensor["data_offsets"][1] for tensor in tensors), default=0)
            count = sum(math.prod(tensor["shape"]) for tensor in tensors)
        except (ValueError, KeyError, AttributeError, TypeError, IndexError):
            return f"has no safetensors header ({size_text(size)})", 0
    if size != expected:
        state = "it is truncated" if size < expected else "it is not the file that was saved"
        return f"has {size} bytes, but its header declares {expected}: {state}", count
    return None, count


def torch_file_is_cut(path: Path) -> bool:
    """torch.save writes a zip archive, which ends with its directory. Files of old versions are no archives."""
    with path.open("rb") as file:
        return file.read(2) in (b"", b"PK") and not zipfile.is_zipfile(path)


def declared_dtype(model: Path) -> str:
    try:
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        return str(config.get("dtype") or config.get("torch_dtype"))
    except (OSError, ValueError, AttributeError):
        return ""
