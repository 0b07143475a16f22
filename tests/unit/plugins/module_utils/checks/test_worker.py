from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow
import pytest
from ansible_collections.argus.verl.plugins.module_utils import checks
from ansible_collections.argus.verl.plugins.module_utils.checks import common as checks_common
from ansible_collections.argus.verl.plugins.module_utils.checks import packages as package_checks
from ansible_collections.argus.verl.plugins.module_utils.checks import reward
from ansible_collections.argus.verl.plugins.module_utils.checks.node import check_node
from ansible_collections.argus.verl.plugins.module_utils.checks.worker import check_worker
from ansible_collections.argus.verl.plugins.module_utils.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.staging.tiny import rl_rows, sft_rows
from pyarrow import parquet

LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"
REWARD = "def compute_score(data_source, solution_str, ground_truth, extra_info=None):\n    return 0.0\n"
SCORES = """
def default_compute_score(data_source, solution_str, ground_truth):
    if data_source == "openai/gsm8k":
        return 1
    elif data_source in ["math_dapo", "math"] or data_source.startswith("aime"):
        return 2
"""
REQUIREMENTS = ["numpy>=2.0.0", "tensordict!=0.9.0,<=0.10.0,>=0.8.0", "wandb", "pybind11", "pytest; extra == 'test'"]
INSTALLED = {"numpy": "2.4.6", "tensordict": "0.10.0"}


def safetensors(path: Path, names: tuple[str, ...] = ("a", "b")) -> None:
    """A file of 12 parameters a tensor."""
    header = {
        name: {"dtype": "F32", "shape": [3, 4], "data_offsets": [48 * index, 48 * (index + 1)]}
        for index, name in enumerate(names)
    }
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(48 * len(names)))


def table(path: Path, rows: list[dict[str, Any]]) -> None:
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A shared root with a snapshot, a model, a dataset of each kind and a reward."""
    shared = tmp_path / "private"
    (shared / "jobs").mkdir(parents=True)
    scores = shared / "common/code/verl/verl-0.9.1/verl/utils/reward_score"
    scores.mkdir(parents=True)
    (scores / "__init__.py").write_text(SCORES)
    manifest = {"verl_version": "0.9.1", "requirements": REQUIREMENTS}
    (shared / "common/code/verl/verl-0.9.1/manifest.json").write_text(json.dumps(manifest))
    model = shared / "common/models/tiny"
    model.mkdir(parents=True)
    (model / "config.json").write_text('{"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}')
    (model / "tokenizer.json").write_text("{}\n")
    (model / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    safetensors(model / "model.safetensors")
    for name, rows in (("rl", rl_rows()), ("sft", sft_rows())):
        (shared / "datasets" / name).mkdir(parents=True)
        for split, part in rows.items():
            table(shared / "datasets" / name / f"{split}.parquet", part)
    (shared / "user/code").mkdir(parents=True)
    (shared / "user/code/r.py").write_text(REWARD)
    return shared


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The packages of the workers, to be changed by a test."""
    packages = dict(INSTALLED)
    monkeypatch.setattr(package_checks, "installed_version", lambda request, name: packages.get(name))
    return packages


def a_request(root: Path, **changes: Any) -> dict[str, Any]:
    config = {"data": {"train_batch_size": 8}, "trainer": {"save_freq": 10, "total_epochs": 1}}
    request = {
        "shared_root": str(root),
        "workload": "grpo",
        "code_path": f"{root}/common/code/verl/verl-0.9.1",
        "model": f"{root}/common/models/tiny",
        "dataset": f"{root}/datasets/rl",
        "reward": [f"{root}/user/code/r.py", "compute_score"],
        "environment": {},
        "files": [],
        "accept": [],
        "config": config_for(root, "rl", config),
    }
    if changes.get("workload") == "sft":
        request.update(dataset=f"{root}/datasets/sft", reward=None, config=config_for(root, "sft", config))
    settings = changes.pop("settings", {})
    for key, value in settings.items():
        inner: Any = request["config"]
        *parts, last = key.split(".")
        for part in parts:
            inner = inner.setdefault(part, {})
        inner[last] = value
    return request | changes


def config_for(root: Path, name: str, config: dict[str, Any]) -> dict[str, Any]:
    files = {f"{split}_files": f"{root}/datasets/{name}/{split}.parquet" for split in ("train", "val")}
    return config | {"data": config["data"] | files}


def found(root: Path, **changes: Any) -> list[tuple[str, str, str]]:
    """Key, text and severity of the findings; the shared root is written as /private."""
    findings = check_worker(a_request(root, **changes))["findings"]
    return [(each["where"], each["what"].replace(str(root), "/private"), each["severity"]) for each in findings]


def facts(root: Path, **changes: Any) -> dict[str, Any]:
    return dict(check_worker(a_request(root, **changes))["facts"])


@pytest.mark.parametrize("workload", ["grpo", "ppo", "sft"])
def test_a_good_job(root: Path, workload: str) -> None:
    assert found(root, workload=workload) == []
    assert found(root, workload=workload, config=None) == []


def test_the_facts(root: Path) -> None:
    said = facts(root, workload="ppo")
    assert said.pop("free_bytes") > 0
    assert set(said.pop("seconds")) == {"dataset", "model", "reward_fn_path", "code_path", "shared_root"}
    assert said == {
        "train_rows": 128,
        "val_rows": 16,
        "data_sources": ["openai/gsm8k"],
        "model_bytes": (root / "common/models/tiny/model.safetensors").stat().st_size,
        "parameters": 24,
        "critic_parameters": 24,
        "versions": {"numpy": "2.4.6", "tensordict": "0.10.0", "wandb": None, "pybind11": None},
        "steps": 16,
        "checkpoint_bytes": 24 * 12 * 2,
        "checkpoints_kept": 2,
        "checkpoint_space": 24 * 12 * 4,
    }


def test_findings_have_the_form_of_the_collection(root: Path) -> None:
    for finding in check_worker(a_request(root, dataset="/nowhere", config=None, model="/nowhere"))["findings"]:
        assert Finding(**finding).as_dict() == finding


def test_the_module_needs_nothing_of_the_collection() -> None:
    text = "".join(file.read_text(encoding="utf-8") for file in Path(checks.__file__).parent.glob("*.py"))
    assert "import ansible" not in text
    assert "from ansible" not in text


def test_a_check_that_breaks_keeps_no_job_away(root: Path) -> None:
    assert found(root, settings={"data.train_batch_size": "eight"})[0] == (
        "dataset",
        "could not be checked: TypeError: '>=' not supported between instances of 'int' and 'str'",
        "warning",
    )


# --- Every node -------------------------------------------------------------------------------------------------------


def seen(root: Path, *files: Path, **changes: Any) -> list[tuple[str, str, str]]:
    request = a_request(root, files=[str(file) for file in files]) | changes
    return [(each["where"], each["what"].replace(str(root), "/private"), each["todo"]) for each in check_node(request)]


def test_a_good_node(root: Path) -> None:
    train = root / "datasets/rl/train.parquet"
    link = root / "datasets/link.parquet"
    link.symlink_to("rl/train.parquet")
    assert seen(root, train, link, root / "common/models/tiny") == []
    assert seen(root, files={str(train): train.stat().st_size, str(link): None}) == []
    assert list((root / "jobs").iterdir()) == []


def test_a_node_without_the_shared_root(root: Path) -> None:
    ((where, what, todo),) = seen(root, shared_root=f"{root}/elsewhere")
    assert (where, what) == ("shared_root", "/private/elsewhere/jobs is not there")
    assert todo == "mount the shared root at this path on every node, and run cluster_up.yml"


def test_a_node_that_sees_another_size(root: Path) -> None:
    file = root / "datasets/rl/train.parquet"
    size = file.stat().st_size
    ((where, what, _todo),) = seen(root, files={str(file): size + 1})
    name = "/private/datasets/rl/train.parquet"
    assert (where, what) == ("dataset", f"{name} has {size} bytes, on the head it has {size + 1}")


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("common/models/tiny/x", "model"),
        ("datasets/rl/x", "dataset"),
        ("common/code/verl/verl-0.9.1/x", "code_path"),
        ("hf/x", "shared_root"),
    ],
)
def test_a_node_that_lacks_a_file(root: Path, path: str, key: str) -> None:
    assert seen(root, root / path) == [
        (key, f"/private/{path} is not there", "see that all nodes mount the same file system")
    ]


def test_a_node_that_lacks_the_reward(root: Path) -> None:
    (root / "user/code/r.py").unlink()
    assert seen(root, root / "user/code/r.py")[0][:2] == ("reward_fn_path", "/private/user/code/r.py is not there")


def test_links_on_a_node(root: Path, tmp_path: Path) -> None:
    home = root / "common/models"
    (home / "dangling").symlink_to(root / "hf/gone")
    (home / "loop").symlink_to(home / "loop")
    (tmp_path / "local").mkdir()
    (home / "outside").symlink_to(tmp_path / "local")
    assert [each[:2] for each in seen(root, home / "dangling")] == [
        ("shared_root", "/private/common/models/dangling is a link to /private/hf/gone, which is not there")
    ]
    assert [each[:2] for each in seen(root, home / "outside")] == [
        ("shared_root", f"/private/common/models/outside leads out of the shared root, to {tmp_path}/local")
    ]
    ((_where, what, _todo),) = seen(root, home / "loop")
    assert what.startswith("/private/common/models/loop cannot be read: ")


def test_a_node_that_cannot_write(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: Any) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "open", refuse)
    assert seen(root) == [
        (
            "shared_root",
            "/private/jobs is not writable: Read-only file system",
            f"give user id {os.geteuid()} permission to write there, and see that the file system is not full",
        )
    ]


# --- Data -------------------------------------------------------------------------------------------------------------


def write(root: Path, rows: list[dict[str, Any]], name: str = "rl", split: str = "train") -> None:
    table(root / "datasets" / name / f"{split}.parquet", rows)


def rows_with(change: Callable[[dict[str, Any]], None], name: str = "rl") -> list[dict[str, Any]]:
    rows = (rl_rows() if name == "rl" else sft_rows())["train"]
    for row in rows:
        change(row)
    return rows


def test_no_file(root: Path) -> None:
    (root / "datasets/rl/val.parquet").unlink()
    assert found(root) == [("dataset", "/private/datasets/rl/val.parquet is not there", "error")]


def test_a_file_that_is_cut_off(root: Path) -> None:
    file = root / "datasets/rl/train.parquet"
    file.write_bytes(file.read_bytes()[:-100])
    ((where, what, severity),) = found(root)
    assert (where, severity) == ("dataset", "error")
    assert what.startswith("/private/datasets/rl/train.parquet is not readable as parquet: Parquet magic bytes")
    file.write_bytes(b"")
    assert "is not readable as parquet: Parquet file size is 0 bytes" in found(root)[0][1]


def test_a_file_that_is_damaged(root: Path) -> None:
    file = root / "datasets/rl/train.parquet"
    content = file.read_bytes()
    file.write_bytes(content[:4] + b"\xff" * 2000 + content[2004:])
    assert found(root)[0][1].startswith("/private/datasets/rl/train.parquet is damaged: ")


def test_a_pointer_in_place_of_data(root: Path) -> None:
    (root / "datasets/rl/train.parquet").write_text(LFS)
    text = "/private/datasets/rl/train.parquet is a git-lfs pointer, not the file"
    assert found(root) == [("dataset", text, "error")]


def test_no_rows(root: Path) -> None:
    schema = parquet.read_schema(root / "datasets/rl/train.parquet")
    parquet.write_table(schema.empty_table(), root / "datasets/rl/val.parquet")
    assert found(root) == [("dataset", "/private/datasets/rl/val.parquet has no rows", "error")]


def test_data_of_the_other_kind(root: Path) -> None:
    files = {split: f"{root}/datasets/%s/{split}.parquet" for split in ("train", "val")}
    to_sft = {f"data.{split}_files": file % "rl" for split, file in files.items()}
    assert found(root, workload="sft", settings=to_sft)[0] == (
        "dataset",
        "/private/datasets/rl/train.parquet is a dataset for ppo and grpo (prompt, reward_model), not for sft: it has "
        "no column messages",
        "error",
    )
    to_grpo = {f"data.{split}_files": file % "sft" for split, file in files.items()}
    assert found(root, settings=to_grpo)[0] == (
        "dataset",
        "/private/datasets/sft/train.parquet is a dataset for sft (messages), not for grpo: it has no column prompt",
        "error",
    )


def test_columns_of_other_names(root: Path) -> None:
    write(root, [{"question": "1", "answer": "2"}] * 8)
    text = "/private/datasets/rl/train.parquet has no column prompt; it has: question, answer"
    assert found(root) == [("dataset", text, "error")]
    write(root, [{"chat" if key == "prompt" else key: row[key] for key in row} for row in rl_rows()["train"]])
    write(
        root, [{"chat" if key == "prompt" else key: row[key] for key in row} for row in rl_rows()["val"]], split="val"
    )
    assert found(root, settings={"data.prompt_key": "chat"}) == []


def test_prompts_that_are_text(root: Path) -> None:
    write(root, rows_with(lambda row: row.update(prompt="How many?")))
    text = "/private/datasets/rl/train.parquet: column prompt is string, verl reads a list of {role, content}"
    assert found(root) == [("dataset", text, "error")]


@pytest.mark.parametrize("name", ["data_source", "reward_model"])
def test_what_reward_managers_read(root: Path, name: str) -> None:
    write(root, rows_with(lambda row: row.pop(name)))
    ((where, what, severity),) = found(root)
    assert (where, severity) == ("dataset", "error")
    assert what.startswith(
        f"/private/datasets/rl/train.parquet has no column {name}, which verl's reward managers read;"
    )
    # Other rewards read what they like.
    assert found(root, settings={"reward.reward_manager.source": "importlib"}) == []
    assert found(root, reward=None, settings={"reward.reward_model.enable": True}) == []


def test_no_ground_truth(root: Path) -> None:
    write(root, rows_with(lambda row: row.update(reward_model={"style": "rule"})))
    text = (
        "/private/datasets/rl/train.parquet: column reward_model is struct<style: string>, without ground_truth in it"
    )
    assert found(root) == [("dataset", text, "error")]


def test_a_ground_truth_that_is_null(root: Path) -> None:
    rows = rl_rows()["train"]
    rows[3]["reward_model"]["ground_truth"] = None
    write(root, rows)
    text = "/private/datasets/rl/train.parquet, row 3: its ground_truth is null"
    assert found(root, reward=None) == [("dataset", text, "error")]
    assert found(root) == []


def test_a_key_that_verl_does_not_read(root: Path) -> None:
    text = "data.reward_fn_key=source does nothing: since verl 0.9 the column is always data_source"
    assert set(found(root, settings={"data.reward_fn_key": "source"})) == {("dataset", text, "warning")}


def test_a_key_that_older_releases_read(root: Path) -> None:
    version = root / "common/code/verl/verl-0.9.1/verl/version/version"
    version.parent.mkdir()
    version.write_text("0.8.0\n")
    text = "/private/datasets/rl/train.parquet has no column source, which verl's reward managers read; it has: "
    settings = {"data.reward_fn_key": "source"}
    assert found(root, settings=settings)[0][1].startswith(text)
    for split, rows in rl_rows().items():
        write(root, [{"source" if key == "data_source" else key: row[key] for key in row} for row in rows], split=split)
    assert found(root, reward=None, settings=settings) == []


def test_extra_info_that_is_text(root: Path) -> None:
    write(root, rows_with(lambda row: row.update(extra_info="{}")))
    text = "/private/datasets/rl/train.parquet: column extra_info is string, verl reads a mapping"
    assert found(root) == [("dataset", text, "error")]


def test_a_data_source_without_a_reward(root: Path) -> None:
    write(root, rows_with(lambda row: row.update(data_source="mine")))
    assert found(root) == []
    text = "/private/datasets/rl/train.parquet, row 0: verl has no reward function for data_source 'mine'"
    assert found(root, reward=None) == [("dataset", text, "error")]
    for source in ("openai/gsm8k", "math", "aime2024"):
        write(root, rows_with(lambda row, source=source: row.update(data_source=source)))
        assert found(root, reward=None) == []


@pytest.mark.parametrize(
    ("messages", "what", "severity"),
    [
        ([], "it has no messages", "error"),
        ([{"role": None, "content": "x"}], "a message has no role", "error"),
        ([{"role": "user", "content": ""}], "a message of the user is empty", "error"),
        (
            [{"role": "human", "content": "x"}],
            "the role 'human' is none that chat templates know (system, developer, user, assistant, tool)",
            "warning",
        ),
    ],
)
def test_messages_of_rl(root: Path, messages: list[dict[str, Any]], what: str, severity: str) -> None:
    rows = rl_rows()["train"]
    rows[1]["prompt"] = rows[5]["prompt"] = messages
    write(root, rows)
    text = f"/private/datasets/rl/train.parquet, row 1: {what} (and 1 more of the first 64)"
    assert found(root) == [("dataset", text, severity)]


def test_messages_of_sft(root: Path) -> None:
    rows = sft_rows()["train"]
    rows[2]["messages"] = [{"role": "user", "content": "x"}]
    write(root, rows, name="sft")
    text = (
        "/private/datasets/sft/train.parquet, row 2: no message is the assistant's, so there is nothing to learn "
        "(roles: user)"
    )
    assert found(root, workload="sft") == [("dataset", text, "error")]


def test_a_tool_call_has_no_content(root: Path) -> None:
    call = {"role": "assistant", "content": None, "tool_calls": [{"name": "add"}]}
    write(root, [{"messages": [{"role": "user", "content": "x", "tool_calls": None}, call]}] * 8, name="sft")
    assert found(root, workload="sft") == []


def test_less_than_a_batch(root: Path) -> None:
    text = (
        "/private/datasets/rl/train.parquet has 128 rows, a batch takes 129 (data.train_batch_size): "
        "there would be no step"
    )
    assert found(root, settings={"data.train_batch_size": 129}) == [("dataset", text, "error")]
    assert facts(root, settings={"data.train_batch_size": 129, "trainer.total_training_steps": 4})["steps"] == 0
    assert found(root, settings={"data.train_batch_size": 128}) == []
    assert found(root, settings={"data.train_max_samples": 7})[0][1].startswith(
        "/private/datasets/rl/train.parquet has 7 rows, a batch takes 8"
    )


def test_less_than_a_batch_for_validation(root: Path) -> None:
    text = (
        "/private/datasets/sft/val.parquet has 32 rows, a batch takes 64 (data.train_batch_size): val/loss would be nan"
    )
    assert found(root, workload="sft", settings={"data.train_batch_size": 64}) == [("dataset", text, "warning")]
    assert found(root, workload="sft", settings={"data.train_batch_size": 64, "data.val_files": None}) == []


def test_several_files(root: Path) -> None:
    files = [f"{root}/datasets/rl/{split}.parquet" for split in ("train", "val")]
    assert facts(root, settings={"data.train_files": files})["train_rows"] == 144
    said = facts(root, settings={"data.train_files": ["hdfs://a/b.parquet", *files]})
    assert "train_rows" not in said
    assert "steps" not in said


def test_a_dataset_class_of_the_user(root: Path) -> None:
    write(root, [{"question": "1"}] * 4)
    assert found(root, settings={"data.custom_cls.path": "x.py"}) == []


# --- Model ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def model(root: Path) -> Path:
    return root / "common/models/tiny"


def model_says(root: Path, *texts: str, severity: str = "error") -> bool:
    return found(root) == [("model", f"/private/common/models/tiny{text}", severity) for text in texts]


def test_no_config(root: Path, model: Path) -> None:
    (model / "config.json").unlink()
    assert model_says(root, "/config.json is not there")
    (model / "adapter_config.json").write_text("{}")
    assert model_says(root, " is a LoRA adapter, not a model")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (LFS, " is a git-lfs pointer, not the file"),
        ("{", " is not readable as JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ('{"architectures": ["A"]}', " has no model_type"),
        ('{"model_type": "a"}', " has architectures null, verl wants exactly one"),
        ('{"model_type": "a", "architectures": ["A", "B"]}', ' has architectures ["A", "B"], verl wants exactly one'),
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
    assert model_says(root, "/tokenizer.json is a git-lfs pointer, not the file")
    (model / "tokenizer.json").write_text('{"model": {"vocab": {"a": 1')
    assert model_says(root, "/tokenizer.json is cut off")


def test_a_tokenizer_elsewhere(root: Path, model: Path) -> None:
    (root / "common/models/tokenizer").mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (model / name).rename(root / "common/models/tokenizer" / name)
    settings = {"actor_rollout_ref.model.tokenizer_path": f"{root}/common/models/tokenizer"}
    assert found(root, settings=settings) == []


def test_no_chat_template(root: Path, model: Path) -> None:
    (model / "tokenizer_config.json").write_text("{}")
    assert model_says(root, " has no chat template, and verl applies one to every row", severity="warning")
    assert found(root, settings={"actor_rollout_ref.model.custom_chat_template": "{{ messages }}"}) == []
    (model / "chat_template.jinja").write_text("{{ messages }}")
    assert found(root) == []


def test_no_weights(root: Path, model: Path) -> None:
    (model / "model.safetensors").unlink()
    assert model_says(root, " has no weights: neither model.safetensors nor pytorch_model.bin, whole or with an index")


def test_weights_that_are_cut_off(root: Path, model: Path) -> None:
    file = model / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[:-8])
    size = len(content)
    assert model_says(root, f"/model.safetensors has {size - 8} bytes, its header says {size}: it is cut off")
    file.write_bytes(content + b"x")
    assert model_says(
        root, f"/model.safetensors has {size + 1} bytes, its header says {size}: it is not what was saved"
    )
    file.write_bytes(content[:100])
    header = 8 + int.from_bytes(content[:8], "little")
    assert model_says(root, f"/model.safetensors has 100 bytes, its header alone {header}: it is cut off")
    file.write_bytes(b"<!DOCTYPE html>")
    assert model_says(root, "/model.safetensors has no safetensors header (15 bytes)")
    file.write_text(LFS)
    assert model_says(root, "/model.safetensors is a git-lfs pointer, not the file")


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
    assert model_says_missing(root) == f"1 of 5 shards in {model} are not there: {shards[4]}"
    for shard in shards[:4]:
        (model / shard).unlink()
    assert model_says_missing(root) == f"5 of 5 shards in {model} are not there: {', '.join(shards[:3])}, …"
    (model / "model.safetensors.index.json").write_text('{"metadata": {}}')
    assert model_says(root, "/model.safetensors.index.json is not readable as an index: 'weight_map'")


def model_says_missing(root: Path) -> str:
    (finding,) = check_worker(a_request(root))["findings"]
    return str(finding["what"])


def test_weights_of_torch(root: Path, model: Path) -> None:
    import zipfile

    (model / "model.safetensors").unlink()
    file = model / "pytorch_model.bin"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data", "x" * 1000)
    assert found(root) == []
    assert facts(root)["parameters"] == file.stat().st_size // 2
    file.write_bytes(file.read_bytes()[:-30])
    assert model_says(root, "/pytorch_model.bin is cut off")


def test_a_critic_of_its_own(root: Path) -> None:
    settings = {"critic.model.path": f"{root}/common/models/critic"}
    assert found(root, settings=settings) == []
    where = "trainer_overrides: critic.model.path"
    (root / "common/models/critic").mkdir()
    assert [each[:2] for each in found(root, workload="ppo", settings=settings)] == [
        (where, "/private/common/models/critic/config.json is not there"),
        (
            where,
            "/private/common/models/critic has no weights: neither model.safetensors nor pytorch_model.bin, "
            "whole or with an index",
        ),
    ]


def test_no_model_at_all(root: Path) -> None:
    text = "/private/common/models/none/config.json is not there"
    assert found(root, model=f"{root}/common/models/none") == [("model", text, "error")]


def test_another_model_by_an_override(root: Path) -> None:
    settings = {"actor_rollout_ref.model.path": f"{root}/common/models/other"}
    assert {where for where, *_rest in found(root, settings=settings)} == {
        "trainer_overrides: actor_rollout_ref.model.path"
    }
    assert found(root, settings={"actor_rollout_ref.model.path": "Qwen/Qwen2.5-7B"}) == []


# --- Reward -----------------------------------------------------------------------------------------------------------


def reward_says(root: Path, text: str, **changes: Any) -> list[tuple[str, str, str]]:
    (root / "user/code/r.py").write_text(text)
    said = found(root, **changes)
    assert not list((root / "user/code").rglob("__pycache__"))
    return [(what, severity) for where, what, severity in said if where == "reward_fn_path"]


@pytest.mark.parametrize(
    "text",
    [
        REWARD,
        "async " + REWARD,
        "def compute_score(**kwargs): ...",
        "def compute_score(solution_str, ground_truth, **kwargs): ...",
        "class Score:\n    def __call__(self, **kwargs): ...\ncompute_score = Score()",
        "import functools\ndef f(x, **kwargs): ...\ncompute_score = functools.partial(f, 1)",
        "print('hello')\nimport sys; sys.stderr.write('x')\n" + REWARD,
        "compute_score = max",
    ],
)
def test_rewards_that_verl_can_call(root: Path, text: str) -> None:
    assert reward_says(root, text) == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("import os\ndef f(:\n", ", line 2: invalid syntax"),
        ("import os\n\nimport no_such.thing\n", ", line 3: imports no_such, which the workers do not have"),
        (
            "from os import nothing\n",
            ", line 1: its import ends with ImportError: cannot import name 'nothing' from 'os'",
        ),
        ("\nraise ValueError('no key')\n", ", line 2: its import ends with ValueError: no key"),
        ("raise SystemExit(3)\n", ", line 1: its import ends with SystemExit: 3"),
        ("import os; os._exit(4)\n", " ends the process that imports it (exit status 4)"),
        ("def other(): ...\ndef third(): ...\n", " has no function compute_score; it has: other, third"),
        ("x = 1\n", " has no function compute_score; it has none"),
        ("compute_score = 1\n", ": compute_score is a int, not a function"),
        (
            "def compute_score(solution, answer): ...\n",
            ": compute_score(solution, answer) does not take data_source, solution_str, ground_truth, extra_info, "
            "which verl passes by name, and wants solution, answer, which verl does not pass",
        ),
        (
            "def compute_score(data_source, solution_str, /, ground_truth, extra_info, *, model): ...\n",
            ": compute_score(data_source, solution_str, /, ground_truth, extra_info, *, model) does not take "
            "data_source, solution_str, which verl passes by name, and wants data_source, solution_str, model, "
            "which verl does not pass",
        ),
    ],
)
def test_rewards_that_verl_cannot_call(root: Path, text: str, what: str) -> None:
    ((said, severity),) = reward_says(root, text)
    assert said.startswith(f"/private/user/code/r.py{what}")
    assert severity == "error"


def test_a_reward_that_is_not_there(root: Path) -> None:
    (root / "user/code/r.py").unlink()
    assert found(root) == [("reward_fn_path", "/private/user/code/r.py is not there", "error")]
    (root / "user/code/r.py").mkdir()
    assert found(root)[0][1].startswith("/private/user/code/r.py is not readable: [Errno 21] Is a directory")


def test_a_module_beside_the_reward(root: Path) -> None:
    (root / "user/code/helper.py").write_text("x = 1\n")
    text = f"import helper\n{REWARD}"
    what = "/private/user/code/r.py, line 1: imports helper, and verl does not look beside the file"
    assert reward_says(root, text) == [(what, "error")]
    assert reward_says(root, text, environment={"PYTHONPATH": f"{root}/user/code"}) == []


def test_a_reward_sees_the_environment_of_the_job(root: Path) -> None:
    text = f"import os\nassert os.environ['LEVEL'] == '3'\n{REWARD}"
    assert reward_says(root, text, environment={"LEVEL": 3}) == []
    assert reward_says(root, text)[0][0].endswith("line 2: its import ends with KeyError: 'LEVEL'")


def test_a_reward_that_takes_long(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reward, "REWARD_SECONDS", 0.5)
    what = "/private/user/code/r.py is not imported after 0.5 s, so that its function is not checked"
    assert reward_says(root, "import time; time.sleep(30)\n") == [(what, "warning")]


def test_arguments_of_the_configuration(root: Path) -> None:
    settings = {"reward.custom_reward_function.reward_kwargs": {"scale": 2}}
    assert reward_says(root, REWARD, settings=settings) == [
        (
            "/private/user/code/r.py: compute_score(data_source, solution_str, ground_truth, extra_info=None) "
            "does not take scale, which verl passes by name",
            "error",
        )
    ]
    wants = REWARD.replace("extra_info=None", "extra_info, scale")
    assert reward_says(root, wants, settings=settings) == []
    assert reward_says(root, wants)[0][0].endswith("wants scale, which verl does not pass")
    assert reward_says(root, REWARD, settings={"reward.reward_model.enable": True})[0][0].endswith(
        "does not take reward_router_address, reward_model_tokenizer, which verl passes by name"
    )


def test_a_manager_that_takes_no_coroutine(root: Path) -> None:
    settings = {"reward.reward_manager.name": "remote"}
    what = "/private/user/code/r.py: compute_score is async, which verl's reward manager remote does not take"
    assert reward_says(root, f"async {REWARD}", settings=settings) == [(what, "error")]


@pytest.mark.parametrize(
    "settings", [{"reward.reward_manager.source": "importlib"}, {"reward_model.reward_manager": "batch"}]
)
def test_managers_with_calls_of_their_own(root: Path, settings: dict[str, Any]) -> None:
    assert reward_says(root, "def compute_score(x): ...\n", settings=settings) == []


# --- Requirements -----------------------------------------------------------------------------------------------------


def declare(root: Path, *lines: str) -> None:
    manifest = {"verl_version": "0.9.1", "requirements": lines}
    (root / "common/code/verl/verl-0.9.1/manifest.json").write_text(json.dumps(manifest))


def test_a_version_that_verl_excludes(root: Path, installed: dict[str, str]) -> None:
    installed["tensordict"] = "0.12.0"
    finding = next(each for each in check_worker(a_request(root))["findings"])
    assert finding == {
        "where": "code_path",
        "what": "verl 0.9.1 declares tensordict!=0.9.0,<=0.10.0,>=0.8.0, the workers have 0.12.0",
        "todo": "use an image made for this verl, another snapshot, or insist with accept: [requirements]",
        "severity": "error",
    }
    assert [severity for _where, _what, severity in found(root, accept=["requirements"])] == ["warning"]


def test_a_package_that_is_not_there(root: Path, installed: dict[str, str]) -> None:
    del installed["numpy"]
    text = "verl 0.9.1 declares numpy>=2.0.0, the workers do not have it"
    assert found(root) == [("code_path", text, "error")]
    assert found(root, accept=["requirements"]) == [("code_path", text, "warning")]


def test_packages_that_only_some_jobs_need(root: Path) -> None:
    text = "verl 0.9.1 declares wandb, the workers do not have it"
    assert found(root, settings={"trainer.logger": ["console", "file"]}) == []
    assert found(root, settings={"trainer.logger": ["console", "wandb"]}) == [("code_path", text, "error")]
    text = "verl 0.9.1 declares pybind11, the workers do not have it"
    assert found(root, settings={"actor_rollout_ref.actor.strategy": "megatron"}) == [("code_path", text, "error")]


def test_a_package_of_a_data_source(root: Path) -> None:
    declare(root, "pylatexenc")
    (root / "common/code/verl/verl-0.9.1/verl/utils/reward_score/__init__.py").unlink()
    write(root, rows_with(lambda row: row.update(data_source="numina_cn_k12")))
    assert found(root) == []
    text = "verl 0.9.1 declares pylatexenc, the workers do not have it"
    assert found(root, reward=None) == [("code_path", text, "error")]


def test_markers_and_extras(root: Path) -> None:
    declare(root, "a; python_version < '3'", "b; extra == 'mcore'", "vllm>=0.18.0; extra == 'vllm'", "not a line!")
    assert found(root) == []
    text = "verl 0.9.1 declares vllm>=0.18.0, the workers do not have it"
    assert found(root, settings={"actor_rollout_ref.rollout.name": "vllm"}) == [("code_path", text, "error")]
    assert found(root, settings={"actor_rollout_ref.rollout.name": "sglang"}) == []


def test_pins_of_an_engine(root: Path, installed: dict[str, str]) -> None:
    declare(
        root, *(f"{pin}; extra == 'vllm'" for pin in ("verl[verl-core]", "torch==2.11.0", "vllm==0.24.0", "mbridge"))
    )
    vllm = {"actor_rollout_ref.rollout.name": "vllm"}
    installed.update(torch="2.11.0+cu130", vllm="0.24.0")
    assert found(root, settings=vllm) == []
    installed["vllm"] = "0.24.1"
    text = "verl 0.9.1 declares vllm==0.24.0, the workers have "
    assert found(root, settings=vllm) == [("code_path", f"{text}0.24.1", "warning")]
    installed["vllm"] = "0.12.0"
    assert found(root, settings=vllm) == [("code_path", f"{text}0.12.0", "error")]
    installed.update(torch="2.12.0", vllm="0.24.0")
    text = "verl 0.9.1 is tested for vllm with torch==2.11.0 (the workers have 2.12.0)"
    assert found(root, settings=vllm) == [("code_path", text, "warning")]


def test_no_packaging(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)
    text = "the workers have no packaging, so that what verl declares is not compared with what they have"
    assert found(root) == [("code_path", text, "warning")]


def test_no_manifest(root: Path) -> None:
    (root / "common/code/verl/verl-0.9.1/manifest.json").unlink()
    assert found(root) == []


def test_the_version_that_a_job_would_import(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert package_checks.installed_version({}, "pyarrow") == pyarrow.__version__
    assert package_checks.installed_version({}, "no-such-package") is None
    (tmp_path / "own/pyarrow-1.0.dist-info").mkdir(parents=True)
    (tmp_path / "own/pyarrow-1.0.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: pyarrow\nVersion: 1.0\n")
    environment = {"PYTHONPATH": f"{root}:{tmp_path}/own"}
    assert package_checks.installed_version({"environment": environment}, "pyarrow") == "1.0"


# --- Space ------------------------------------------------------------------------------------------------------------

# The tiny model's 24 parameters: 4 bytes each for the model and for each of Adam's two moments.
CHECKPOINT = 24 * 12


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def free(size: int) -> None:
        monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=size, f_frsize=1))

    return free


def test_too_little_space(root: Path, free: Callable[[int], None]) -> None:
    free(2 * CHECKPOINT - 1)
    findings = check_worker(a_request(root))["findings"]
    assert findings == [
        {
            "where": "shared_root",
            "what": f"checkpoints need about 576 bytes (2 of 2 at a time, 288 bytes each for the actor), "
            f"575 bytes are free in {root}",
            "todo": "raise trainer.save_freq, lower trainer.max_actor_ckpt_to_keep, make room, or insist with "
            "accept: [space]",
            "severity": "error",
        }
    ]
    assert [each[2] for each in found(root, accept=["space"])] == ["warning"]
    # What other strategies write has not been measured.
    assert [each[2] for each in found(root, settings={"actor_rollout_ref.actor.strategy": "veomni"})] == ["warning"]


def test_little_space(root: Path, free: Callable[[int], None]) -> None:
    free(int(2 * CHECKPOINT / 0.8) + 1)
    assert found(root) == []
    free(int(2 * CHECKPOINT / 0.8))
    ((_where, what, severity),) = found(root)
    assert what.startswith("checkpoints need about 576 bytes")
    assert severity == "warning"


def test_actor_and_critic(root: Path, free: Callable[[int], None]) -> None:
    free(0)
    settings = {"trainer.save_freq": 4, "trainer.max_actor_ckpt_to_keep": 3, "trainer.max_critic_ckpt_to_keep": 1}
    finding = check_worker(a_request(root, workload="ppo", settings=settings))["findings"][-1]
    assert finding["what"].startswith(
        f"checkpoints need about {size(5 * CHECKPOINT)} (3 of 4 at a time, 288 bytes each for the actor, "
        "2 of 4 at a time, 288 bytes each for the critic)"
    )
    assert "lower trainer.max_actor_ckpt_to_keep and trainer.max_critic_ckpt_to_keep" in finding["todo"]


def size(count: int) -> str:
    return checks_common.size_text(count)


def test_sizes_as_text() -> None:
    assert [size(count) for count in (0, 999, 1000, 12345, 2_500_000, 48e9, 1.44e12)] == [
        "0 bytes",
        "999 bytes",
        "1.0 kB",
        "12 kB",
        "2.5 MB",
        "48 GB",
        "1.4 TB",
    ]


@pytest.mark.parametrize(
    ("workload", "settings", "steps", "kept"),
    [
        ("grpo", {}, 16, 2),
        ("grpo", {"trainer.save_freq": 8}, 16, 2),
        ("grpo", {"trainer.save_freq": -1}, 16, 0),
        ("grpo", {"trainer.total_training_steps": 4}, 4, 1),
        ("grpo", {"trainer.total_epochs": 3}, 48, 5),
        ("grpo", {"trainer.total_epochs": 3, "trainer.max_actor_ckpt_to_keep": 3}, 48, 3),
        ("grpo", {"trainer.total_epochs": 3, "trainer.max_actor_ckpt_to_keep": 1}, 48, 2),
        ("grpo", {"trainer.total_epochs": 3, "trainer.remove_previous_ckpt_in_save": True}, 48, 2),
        ("sft", {"trainer.save_freq": -1}, 16, 1),
        ("sft", {"trainer.save_freq": "after_each_epoch", "trainer.total_epochs": 2}, 32, 2),
        ("sft", {"trainer.save_freq": 1, "trainer.max_ckpt_to_keep": 4}, 16, 4),
    ],
)
def test_how_many_checkpoints(root: Path, workload: str, settings: dict[str, Any], steps: int, kept: int) -> None:
    said = facts(root, workload=workload, settings=settings)
    assert (said["steps"], said["checkpoints_kept"]) == (steps, kept)
    assert said["checkpoint_space"] == kept * CHECKPOINT


@pytest.mark.parametrize(
    ("settings", "items"),
    [
        ({"actor_rollout_ref.actor.checkpoint.save_contents": ["model"]}, 4),
        ({"actor_rollout_ref.actor.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"]}, 16),
        ({"actor_rollout_ref.actor.fsdp_config.model_dtype": "bf16"}, 6),
        ({"actor_rollout_ref.model.lora_rank": 8}, 4),
        ({"actor_rollout_ref.model.lora.rank": 8}, 4),
    ],
)
def test_what_a_checkpoint_holds(root: Path, settings: dict[str, Any], items: int) -> None:
    assert facts(root, settings=settings)["checkpoint_bytes"] == 24 * items


def test_steps_that_do_not_come(root: Path) -> None:
    text = (
        "trainer.total_training_steps=40, but trainer.total_epochs=1 ends the job after 16 steps "
        "(128 rows in batches of 8)"
    )
    settings = {"trainer.total_training_steps": 40}
    assert found(root, settings=settings) == [("trainer_overrides", text, "warning")]
    assert facts(root, settings=settings)["checkpoints_kept"] == 1


def test_a_model_of_unknown_size(root: Path) -> None:
    (root / "common/models/tiny/model.safetensors").unlink()
    assert "checkpoint_space" not in facts(root)
