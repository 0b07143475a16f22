# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of the gate that looks at the things themselves: data, model, reward, packages and space, on the nodes.

It travels into Ray tasks by value, where there is neither Ansible nor this collection. So it imports nothing of
either, of the image's packages only what a check needs and inside of it, and a finding is a mapping with the keys of
``findings.Finding``. Of data and weights it reads footers, headers and a few rows.

A request is a mapping:

shared_root, workload, code_path, model, dataset: as in the JobSpec; all paths are absolute.
reward: the file and the function, or None.
environment: the environment variables of the job.
files: what has to be there on every node: paths, or a mapping of paths to their sizes on the head (None: any).
accept: checks whose errors the user takes as warnings: "requirements", "space".
config: the composed Hydra configuration of the job, or None when it is not known; then less is checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .common import (
    ITEM_BYTES,
    SFT,
    WARNING,
    finding,
    has_critic,
    is_lfs_pointer,
    one_line,
    pointer_finding,
    setting,
    size_text,
)

# The format's own limit of a header.
SAFETENSORS_HEADER_LIMIT = 100_000_000
# In the order in which transformers looks for them.
WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
VOCABULARIES = ("vocab*", "*.model", "*.tiktoken", "merges.txt", "tekken.json")


def model_findings(request: Mapping[str, Any], facts: dict[str, Any]) -> list[dict[str, str]]:
    config = request.get("config")
    section = "model" if request["workload"] == SFT else "actor_rollout_ref.model"
    model = str(setting(config, f"{section}.path", request["model"]))
    # A name on the hub is looked up in HF_HOME, by rules of its own.
    if not model.startswith("/"):
        return []
    where = "model" if model == request["model"] else f"trainer_overrides: {section}.path"
    if not Path(model).is_dir():
        return config_findings(where, Path(model))
    found, facts["model_bytes"], facts["parameters"] = weight_findings(where, Path(model))
    found = config_findings(where, Path(model)) + found
    tokenizer = str(setting(config, f"{section}.tokenizer_path", model))
    if tokenizer.startswith("/"):
        template = bool(setting(config, f"{section}.custom_chat_template"))
        found += tokenizer_findings(where, Path(tokenizer), has_template=template)
    critic = str(setting(config, "critic.model.path", model))
    if has_critic(request):
        facts["critic_parameters"] = facts["parameters"]
        if critic != model and critic.startswith("/"):
            where = "trainer_overrides: critic.model.path"
            more, _dummy, facts["critic_parameters"] = weight_findings(where, Path(critic))
            found += config_findings(where, Path(critic)) + more
    return found


def config_findings(where: str, model: Path) -> list[dict[str, str]]:
    path = model / "config.json"
    try:
        if is_lfs_pointer(path):
            return [pointer_finding(where, path)]
        read = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if (model / "adapter_config.json").is_file():
            todo = "name the base model, and the adapter with actor_rollout_ref.model.lora_adapter_path"
            return [finding(where, f"{model} is a LoRA adapter, not a model", todo)]
        return [finding(where, f"{path} is not there", "name the directory that holds it and the weights")]
    except (OSError, ValueError) as error:
        return [finding(where, f"{path} is not readable as JSON: {one_line(error)}", "stage the model again")]
    if not isinstance(read, dict) or not read.get("model_type"):
        return [finding(where, f"{path} has no model_type", "stage the model again, in the form of transformers")]
    architectures = read.get("architectures")
    if not isinstance(architectures, list) or len(architectures) != 1:
        # workers/config/model.py: HFModelConfig asserts it.
        what = f"{path} has architectures {json.dumps(architectures)}, verl wants exactly one"
        return [finding(where, what, "stage the model again, in the form of transformers")]
    return []


def tokenizer_findings(where: str, path: Path, *, has_template: bool) -> list[dict[str, str]]:
    tokenizer, settings = path / "tokenizer.json", path / "tokenizer_config.json"
    for file in (tokenizer, settings):
        if file.is_file() and is_lfs_pointer(file):
            return [pointer_finding(where, file)]
        # The first may have 30 MB: its end tells whether it is whole.
        if file.is_file() and not ends_as_mapping(file):
            return [finding(where, f"{file} is cut off", "stage the model again")]
    vocabulary = any(True for pattern in VOCABULARIES for _dummy in path.glob(pattern))
    if not tokenizer.is_file() and not (settings.is_file() and vocabulary):
        what = f"{path} has no tokenizer: neither tokenizer.json, nor tokenizer_config.json with a vocabulary"
        return [finding(where, what, "stage the tokenizer's files beside the weights")]
    try:
        read = json.loads(settings.read_text(encoding="utf-8")) if settings.is_file() else {}
    except (OSError, ValueError) as error:
        return [finding(where, f"{settings} is not readable as JSON: {one_line(error)}", "stage the model again")]
    templates = ("chat_template.jinja", "chat_template.json")
    if has_template or read.get("chat_template") or any((path / name).is_file() for name in templates):
        return []
    what = f"{path} has no chat template, and verl applies one to every row"
    todo = "add chat_template.jinja (instruct models have one), or set custom_chat_template of the model"
    return [finding(where, what, todo, WARNING)]


def ends_as_mapping(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 64))
        return file.read().rstrip().endswith(b"}")


def weight_findings(where: str, model: Path) -> tuple[list[dict[str, str]], int, int | None]:
    """What is wrong with the weights, their bytes, and the number of parameters."""
    again = "stage the model again: the download may have been cut off"
    name = next((name for name in WEIGHTS if (model / name).is_file()), None)
    if name is None:
        todo = "name a directory with weights, in the form that save_pretrained writes"
        what = f"{model} has no weights: neither model.safetensors nor pytorch_model.bin, whole or with an index"
        return [finding(where, what, todo)], 0, None
    shards = [name]
    if name.endswith(".index.json"):
        try:
            if is_lfs_pointer(model / name):
                return [pointer_finding(where, model / name)], 0, None
            shards = sorted(set(json.loads((model / name).read_text(encoding="utf-8"))["weight_map"].values()))
        except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
            return [finding(where, f"{model / name} is not readable as an index: {one_line(error)}", again)], 0, None
    missing = [shard for shard in shards if not (model / shard).is_file()]
    if missing:
        what = f"{len(missing)} of {len(shards)} shards in {model} are not there: {', '.join(missing[:3])}"
        return [finding(where, what + (", …" if len(missing) > 3 else ""), again)], 0, None
    found: list[dict[str, str]] = []
    size, parameters = 0, 0
    for path in (model / shard for shard in shards):
        size += path.stat().st_size
        if is_lfs_pointer(path):
            found.append(pointer_finding(where, path))
        elif path.suffix == ".safetensors":
            problem, count = safetensors_problem(path)
            parameters += count
            if problem:
                found.append(finding(where, f"{path} {problem}", again))
        elif torch_file_is_cut(path):
            found.append(finding(where, f"{path} is cut off", again))
    if name.startswith("pytorch") and not found:
        parameters = size // ITEM_BYTES.get(declared_dtype(model), 2)
    return found, size, None if found else parameters


def safetensors_problem(path: Path) -> tuple[str | None, int]:
    """What is wrong with a file, as its header tells without the data, and the number of its parameters."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > SAFETENSORS_HEADER_LIMIT:
            return f"has no safetensors header ({size_text(size)})", 0
        if size < 8 + length:
            return f"has {size} bytes, its header alone {8 + length}: it is cut off", 0
        try:
            header = json.loads(file.read(length))
            tensors = [each for name, each in header.items() if name != "__metadata__"]
            implied = 8 + length + max((each["data_offsets"][1] for each in tensors), default=0)
            count = 0
            for each in tensors:
                elements = 1
                for extent in each["shape"]:
                    elements *= extent
                count += elements
        except (ValueError, KeyError, AttributeError, TypeError, IndexError):
            return f"has no safetensors header ({size_text(size)})", 0
    if size != implied:
        state = "it is cut off" if size < implied else "it is not what was saved"
        return f"has {size} bytes, its header says {implied}: {state}", count
    return None, count


def torch_file_is_cut(path: Path) -> bool:
    """torch.save writes a zip archive, whose directory is its end; older files are not archives."""
    import zipfile

    with path.open("rb") as file:
        return file.read(2) in (b"", b"PK") and not zipfile.is_zipfile(path)


def declared_dtype(model: Path) -> str:
    try:
        read = json.loads((model / "config.json").read_text(encoding="utf-8"))
        return str(read.get("dtype") or read.get("torch_dtype"))
    except (OSError, ValueError, AttributeError):
        return ""
