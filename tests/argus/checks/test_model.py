from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest
from checked_job import LFS, checked, facts, found, safetensors


@pytest.fixture
def model(root: Path) -> Path:
    return root / "common/models/tiny"


def model_says(root: Path, *texts: str, severity: str = "error") -> bool:
    return found(root) == [("model", f"/private/common/models/tiny{text}", severity) for text in texts]


def test_no_config(root: Path, model: Path) -> None:
    (model / "config.json").unlink()
    assert model_says(root, "/config.json does not exist")
    (model / "adapter_config.json").write_text("{}")
    assert model_says(root, " is a LoRA adapter, not a model")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (LFS, " is a Git LFS pointer, not the file"),
        ("{", " cannot be read as JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ('{"architectures": ["A"]}', " has no model_type"),
        ('{"model_type": "a"}', " has architectures null, but verl requires exactly one"),
        (
            '{"model_type": "a", "architectures": ["A", "B"]}',
            ' has architectures ["A", "B"], but verl requires exactly one',
        ),
    ],
)
def test_a_config_that_is_none(root: Path, model: Path, text: str, what: str) -> None:
    (model / "config.json").write_text(text)
    assert model_says(root, f"/config.json{what}")


def test_no_tokenizer(root: Path, model: Path) -> None:
    (model / "tokenizer.json").unlink()
    assert model_says(root, " has no tokenizer: neither tokenizer.json, nor tokenizer_config.json with a vocabulary")
    (model / "vocab.json").write_text("{}")
    assert found(root) == []


def test_a_tokenizer_that_is_none(root: Path, model: Path) -> None:
    (model / "tokenizer.json").write_text(LFS)
    assert model_says(root, "/tokenizer.json is a Git LFS pointer, not the file")
    (model / "tokenizer.json").write_text('{"model": {"vocab": {"a": 1')
    assert model_says(root, "/tokenizer.json is truncated")


def test_a_tokenizer_elsewhere(root: Path, model: Path) -> None:
    (root / "common/models/tokenizer").mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (model / name).rename(root / "common/models/tokenizer" / name)
    settings = {"actor_rollout_ref.model.tokenizer_path": f"{root}/common/models/tokenizer"}
    assert found(root, settings=settings) == []


def test_no_chat_template(root: Path, model: Path) -> None:
    (model / "tokenizer_config.json").write_text("{}")
    assert model_says(root, " has no chat template, but verl applies one to every row", severity="warning")
    assert found(root, settings={"actor_rollout_ref.model.custom_chat_template": "{{ messages }}"}) == []
    (model / "chat_template.jinja").write_text("{{ messages }}")
    assert found(root) == []


def test_no_weights(root: Path, model: Path) -> None:
    (model / "model.safetensors").unlink()
    assert model_says(root, " has no weights: neither model.safetensors nor pytorch_model.bin, and no index of either")


def test_weights_that_are_cut_off(root: Path, model: Path) -> None:
    file = model / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-8])
    size = len(content)
    assert model_says(root, f"/model.safetensors has {size - 8} bytes, but its header declares {size}: it is truncated")
    file.write_bytes(content + b"x")
    assert model_says(
        root,
        f"/model.safetensors has {size + 1} bytes, but its header declares {size}: it is not the file that was saved",
    )
    file.write_bytes(content[:100])
    header = 8 + int.from_bytes(content[:8], "little")
    assert model_says(root, f"/model.safetensors has 100 bytes, but its header alone has {header}: it is truncated")
    file.write_bytes(b"<!DOCTYPE html>")
    assert model_says(root, "/model.safetensors has no safetensors header (15 bytes)")
    file.write_text(LFS)
    assert model_says(root, "/model.safetensors is a Git LFS pointer, not the file")


def test_shards(root: Path, model: Path) -> None:
    (model / "model.safetensors").unlink()
    shards = [f"model-{number}.safetensors" for number in range(5)]
    for shard in shards:
        safetensors(model / shard, (shard,))
    index = {"metadata": {}, "weight_map": {shard: shard for shard in shards}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    assert found(root) == []
    assert facts(root)["parameters"] == 60
    (model / shards[4]).unlink()
    assert model_says_missing(root) == f"1 of 5 shards in {model} are missing: {shards[4]}"
    for shard in shards[:4]:
        (model / shard).unlink()
    assert model_says_missing(root) == f"5 of 5 shards in {model} are missing: {', '.join(shards[:3])}, …"
    (model / "model.safetensors.index.json").write_text('{"metadata": {}}')
    assert model_says(root, "/model.safetensors.index.json is not an index of weights: KeyError: 'weight_map'")


def model_says_missing(root: Path) -> str:
    (finding,) = checked(root)
    return finding.what


def test_weights_of_torch(root: Path, model: Path) -> None:
    (model / "model.safetensors").unlink()
    file = model / "pytorch_model.bin"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data", "x" * 1000)
    assert found(root) == []
    assert facts(root)["parameters"] == file.stat().st_size // 2
    file.write_bytes(file.read_bytes()[:-30])
    assert model_says(root, "/pytorch_model.bin is truncated")


def test_a_critic_of_its_own(root: Path) -> None:
    settings = {"critic.model.path": f"{root}/common/models/critic"}
    assert found(root, settings=settings) == []
    where = "trainer_overrides.critic.model.path"
    (root / "common/models/critic").mkdir()
    assert [each[:2] for each in found(root, workload="ppo", settings=settings)] == [
        (where, "/private/common/models/critic/config.json does not exist"),
        (
            where,
            "/private/common/models/critic has no weights: neither model.safetensors nor pytorch_model.bin, "
            "and no index of either",
        ),
    ]


def test_another_model_by_an_override(root: Path) -> None:
    settings = {"actor_rollout_ref.model.path": f"{root}/common/models/other"}
    assert {where for where, *_rest in found(root, settings=settings)} == {
        "trainer_overrides.actor_rollout_ref.model.path"
    }
    assert found(root, settings={"actor_rollout_ref.model.path": "Qwen/Qwen2.5-7B"}) == []


def copy_of_model(root: Path, name: str, *tensors: str) -> str:
    other = root / "common/models" / name
    other.mkdir()
    for file in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (other / file).write_bytes((root / "common/models/tiny" / file).read_bytes())
    safetensors(other / "model.safetensors", tensors)
    return str(other)


def test_the_size_of_a_critic(root: Path) -> None:
    critic = copy_of_model(root, "critic", "a")
    known = facts(root, workload="ppo", settings={"critic.model.path": critic})
    assert (known["parameters"], known["critic_parameters"]) == (24, 12)
    assert "critic_parameters" not in facts(root, settings={"critic.model.path": critic})


def test_problems_of_a_model_that_is_also_the_critic_are_reported_once(root: Path, model: Path) -> None:
    (model / "model.safetensors").unlink()
    assert len(found(root, workload="ppo")) == 1


def test_weights_of_torch_that_are_empty(root: Path, model: Path) -> None:
    (model / "model.safetensors").unlink()
    (model / "pytorch_model.bin").touch()
    assert model_says(root, "/pytorch_model.bin is truncated")
    # torch.save before 1.6 wrote no archive.
    (model / "pytorch_model.bin").write_bytes(b"\x80\x02" + bytes(100))
    assert found(root) == []


def test_settings_of_a_tokenizer_that_are_truncated(root: Path, model: Path) -> None:
    (model / "tokenizer_config.json").write_text('{"chat_template": "')
    assert model_says(root, "/tokenizer_config.json is truncated")
    (model / "tokenizer_config.json").write_text("{}}\n")
    (finding,) = checked(root)
    assert finding.what.startswith(f"{model}/tokenizer_config.json cannot be read as JSON: ")
