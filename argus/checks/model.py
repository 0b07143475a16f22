# SPDX-License-Identifier: Apache-2.0
"""Checks the files of a job's model, and of its critic: config.json, tokenizer, and weights by headers and sizes.

Staging checks models with the same functions.
"""

from __future__ import annotations

import json
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..common.findings import WARNING, Finding
from ..common.text import size_text
from .model_settings import model_setting_findings, text_configuration
from .request import CheckRequest, Facts, error_text, is_lfs_pointer, lfs_pointer_problem

# The limit of the format itself.
MAX_SAFETENSORS_HEADER_BYTES = 100_000_000
# By the names of types in safetensors, config.json and verl's settings.
DTYPE_BYTES = {"F64": 8, "F32": 4, "float32": 4, "fp32": 4, "F16": 2, "BF16": 2, "fp16": 2, "bf16": 2}
# The names of weights, in the order in which transformers looks for them.
WEIGHTS_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
VOCABULARY_PATTERNS = ("vocab*", "*.model", "*.tiktoken", "merges.txt", "tekken.json")
CHAT_TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json")
STAGE_AGAIN = "stage the model again"
STAGE_COMPLETELY = f"{STAGE_AGAIN}: the download may be incomplete"
STAGE_TRANSFORMERS_FORMAT = f"{STAGE_AGAIN}, in the format of Transformers"


@dataclass(frozen=True)
class ModelRef:
    """The directory of a model, and the key of the JobSpec or of a setting that names it."""

    path: Path
    where: str  # the key as findings show it to people
    key: str  # the key that programs compare

    def finding(self, problem: str, remedy: str, severity: str = "error") -> Finding:
        return Finding(self.where, problem, remedy, severity, key=self.key)

    def lfs_pointer_finding(self, path: Path) -> Finding:
        return self.finding(*lfs_pointer_problem(path))


@dataclass(frozen=True)
class Weights:
    """The result of checking a model's weights."""

    findings: tuple[Finding, ...] = ()
    size_bytes: int = 0
    parameter_count: int | None = None  # None if it is unknown


def model_ref(key: str, path: str) -> ModelRef:
    """A reference to the model that an override of this key names."""
    return ModelRef(Path(path), f"trainer_overrides: {key}", f"trainer_overrides.{key}")


def model_findings(request: CheckRequest, facts: Facts) -> list[Finding]:
    """Findings about the trained model, its tokenizer and its critic."""
    section, model = request.model_section, request.model_path
    # A name on the hub is resolved in HF_HOME, by rules of its own.
    if not model.startswith("/") or (request.is_outside_shared_root(model) and not Path(model).exists()):
        return []
    source = ModelRef(Path(model), "model", "model") if model == request.model else model_ref(f"{section}.path", model)
    findings = model_config_findings(request, facts, source, section)
    if not source.path.is_dir():
        return findings
    weights = check_weights(source)
    findings += weights.findings
    facts.model_bytes, facts.parameters = weights.size_bytes, weights.parameter_count
    if request.tokenizer_path.startswith("/"):
        template, path = f"{section}.custom_chat_template", Path(request.tokenizer_path)
        findings += tokenizer_findings(source, path, template, has_template=bool(request.setting(template)))
    return findings + (critic_findings(request, facts, model) if request.has_critic else [])


def critic_findings(request: CheckRequest, facts: Facts, model: str) -> list[Finding]:
    """Findings about a critic that begins with another model than the trained one."""
    critic = str(request.setting("critic.model.path", model))
    facts.critic_parameters = facts.parameters
    if critic == model or not critic.startswith("/"):
        return []
    source = model_ref("critic.model.path", critic)
    weights = check_weights(source)
    facts.critic_parameters = weights.parameter_count
    return [*model_config_findings(request, Facts(), source, "critic.model"), *weights.findings]


def hub_snapshots(path: Path) -> list[Path]:
    """The snapshots in a repository's directory of the Hugging Face cache, that of main first; none elsewhere."""
    if not path.name.startswith("models--"):
        return []
    commits = sorted((path / "snapshots").glob("*"))
    main, name = path / "refs" / "main", b""
    if main.is_file():
        with main.open("rb") as file:
            name = file.read(64).strip()
    return sorted(commits, key=lambda commit: commit.name.encode() != name)


def model_config_findings(request: CheckRequest, facts: Facts, source: ModelRef, section: str) -> list[Finding]:
    """Findings about config.json, alone and against the settings. Fills in vocab_size."""
    config, problems = read_config(source)
    if problems:
        return problems
    facts.vocab_size = text_configuration(request, section, config).number("vocab_size") or None
    return list(model_setting_findings(request, section, config))


def read_config(source: ModelRef) -> tuple[dict[str, Any], list[Finding]]:
    """The model's config.json, and findings about it; with findings, the configuration is empty."""
    path = source.path / "config.json"
    try:
        if is_lfs_pointer(path):
            return {}, [source.lfs_pointer_finding(path)]
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
        return {}, [source.finding(f"{path} has no model_type", STAGE_TRANSFORMERS_FORMAT)]
    architectures = config.get("architectures")
    if not isinstance(architectures, list) or len(architectures) != 1:
        # workers/config/model.py: HFModelConfig asserts it.
        problem = f"{path} has architectures {json.dumps(architectures)}, but verl requires exactly one"
        return {}, [source.finding(problem, STAGE_TRANSFORMERS_FORMAT)]
    return config, []


def tokenizer_findings(source: ModelRef, path: Path, template: str, *, has_template: bool) -> list[Finding]:
    """Findings about a tokenizer. template: the key of the job's chat template. has_template: whether it is set."""
    tokenizer, settings = path / "tokenizer.json", path / "tokenizer_config.json"
    for file in (tokenizer, settings):
        if file.is_file() and is_lfs_pointer(file):
            return [source.lfs_pointer_finding(file)]
        # tokenizer.json may have 30 MB, so only its end is read.
        if file.is_file() and not ends_with_brace(file):
            return [source.finding(f"{file} is truncated", STAGE_AGAIN)]
    vocabulary = any(any(path.glob(pattern)) for pattern in VOCABULARY_PATTERNS)
    if not tokenizer.is_file() and not (settings.is_file() and vocabulary):
        problem = f"{path} has no tokenizer: neither tokenizer.json, nor tokenizer_config.json with a vocabulary"
        return [source.finding(problem, "stage the tokenizer's files beside the weights")]
    try:
        config = json.loads(settings.read_text(encoding="utf-8")) if settings.is_file() else {}
    except (OSError, ValueError) as error:
        return [source.finding(f"{settings} cannot be read as JSON: {error_text(error)}", STAGE_AGAIN)]
    if has_template or config.get("chat_template") or any((path / name).is_file() for name in CHAT_TEMPLATE_FILES):
        return []
    problem = f"{path} has no chat template, but verl applies one to every row"
    remedy = f"add chat_template.jinja (instruct models have one), or set {template}"
    return [source.finding(problem, remedy, WARNING)]


def ends_with_brace(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 64))
        return file.read().rstrip().endswith(b"}")


def check_weights(source: ModelRef) -> Weights:
    """Check the shards of a model without reading tensors, and count its parameters."""
    model = source.path
    name = next((name for name in WEIGHTS_FILES if (model / name).is_file()), None)
    if name is None:
        problem = f"{model} has no weights: neither model.safetensors nor pytorch_model.bin, and no index of either"
        return Weights((source.finding(problem, "give a directory with weights, in the format of save_pretrained"),))
    shards = [name]
    if name.endswith(".index.json"):
        try:
            if is_lfs_pointer(model / name):
                return Weights((source.lfs_pointer_finding(model / name),))
            shards = sorted(set(json.loads((model / name).read_text(encoding="utf-8"))["weight_map"].values()))
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            problem = f"{model / name} is not an index of weights: {type(error).__name__}: {error_text(error)}"
            return Weights((source.finding(problem, STAGE_COMPLETELY),))
    missing = [shard for shard in shards if not (model / shard).is_file()]
    if missing:
        problem = f"{len(missing)} of {len(shards)} shards in {model} are missing: {', '.join(missing[:3])}"
        return Weights((source.finding(problem + (", …" if len(missing) > 3 else ""), STAGE_COMPLETELY),))
    findings: list[Finding] = []
    size_bytes = parameter_count = 0
    for path in [model / shard for shard in shards]:
        size_bytes += path.stat().st_size
        if is_lfs_pointer(path):
            findings.append(source.lfs_pointer_finding(path))
        elif path.suffix == ".safetensors":
            defect, count = safetensors_problem(path)
            parameter_count += count
            findings += [source.finding(f"{path} {defect}", STAGE_COMPLETELY)] if defect else []
        elif is_truncated_torch_file(path):
            findings.append(source.finding(f"{path} is truncated", STAGE_COMPLETELY))
    if not all(shard.endswith(".safetensors") for shard in shards):
        parameter_count = size_bytes // DTYPE_BYTES.get(declared_dtype(model), 2)
    return Weights(tuple(findings), size_bytes, None if findings else parameter_count)


def safetensors_problem(path: Path) -> tuple[str | None, int]:
    """The problem with a safetensors file, or None, and the number of its parameters: from its header and its size."""
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


def is_truncated_torch_file(path: Path) -> bool:
    # torch.save writes a zip archive, whose directory is at its end. Files of old versions are no archives.
    with path.open("rb") as file:
        return file.read(2) in (b"", b"PK") and not zipfile.is_zipfile(path)


def declared_dtype(model: Path) -> str:
    """The type of the weights according to config.json; "" if it cannot be read."""
    try:
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        return str(config.get("dtype") or config.get("torch_dtype"))
    except (OSError, ValueError, AttributeError):
        return ""
