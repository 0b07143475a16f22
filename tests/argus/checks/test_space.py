"""Paths, space, steps and checkpoints of a job, as the checks of a worker see them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from checked_job import checked, facts, findings_of, keys, request

from argus.checks import paths
from argus.checks.paths import check_node, path_findings
from argus.checks.request import Configuration, Facts

# The tiny model's 24 parameters: 4 bytes each for the model and for each of Adam's two moments.
CHECKPOINT = 24 * 12


@pytest.mark.parametrize("workload", ["grpo", "ppo", "sft"])
def test_a_good_job(root: Path, workload: str) -> None:
    assert keys(root, workload=workload) == keys(root, workload=workload, config=None) == []


def test_the_facts(root: Path) -> None:
    values = facts(root, workload="ppo")
    assert values.pop("free_bytes") > 0
    assert {"paths", "dataset", "shared_root"} < set(values.pop("seconds"))
    assert values == {
        "train_rows": 128,
        "val_rows": 16,
        "data_sources": ["openai/gsm8k"],
        "model_bytes": (root / "common/models/tiny/model.safetensors").stat().st_size,
        "parameters": 24,
        "critic_parameters": 24,
        "versions": {"numpy": "2.4.6", "tensordict": "0.10.0", "wandb": None, "pybind11": None},
        "steps": 16,
        "checkpoint_bytes": CHECKPOINT * 2,
        "checkpoints_kept": 2,
        "checkpoint_space": CHECKPOINT * 4,
    }


def test_a_check_that_fails_does_not_stop_the_job(root: Path) -> None:
    ((key, problem, severity),) = findings_of(root, settings={"actor_rollout_ref.model.lora_rank": "eight"})
    assert (key, severity) == ("shared_root", "warning") and problem.startswith("could not be checked: TypeError")


def test_values_of_a_configuration() -> None:
    config = Configuration({"a": {"b": {"c": 1, "d": False}, "t": "x"}, "e": None, "f": "???", "g": "${a.t}", "h": 0.5})
    assert [config.get(key, 5) for key in ("a.b.d", "a.t", "e", "f", "g", "a.t.x")] == [False, "x", 5, 5, 5, 5]
    assert [config.number(key, 7) for key in ("a.b.c", "a.b.d", "a.t", "h", "i")] == [1, 7, 7, 7, 7]


# --- Space for checkpoints --------------------------------------------------------------------------------------------


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def free(blocks: int) -> None:
        monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=blocks, f_frsize=2))

    return free


def test_too_little_space(root: Path, free: Callable[[int], None]) -> None:
    for blocks, severity in ((CHECKPOINT * 5 // 4 + 1, ""), (CHECKPOINT, "warning"), (CHECKPOINT - 1, "error")):
        free(blocks)
        assert keys(root) == ([("shared_root", severity)] if severity else [])
        assert facts(root)["free_bytes"] == 2 * blocks
    assert keys(root, accept=["space"]) == [("shared_root", "warning")]
    # What other strategies write has not been measured.
    assert keys(root, settings={"actor_rollout_ref.actor.strategy": "veomni"}) == [("shared_root", "warning")]
    settings = {"trainer.save_freq": 4, "trainer.max_actor_ckpt_to_keep": 3, "trainer.max_critic_ckpt_to_keep": 1}
    (finding,) = checked(root, workload="ppo", settings=settings)
    assert "actor: 3 of 4 at a time" in finding.problem and "critic: 2 of 4 at a time" in finding.problem


@pytest.mark.parametrize(
    ("workload", "settings", "steps", "kept"),
    [
        ("grpo", {}, 16, 2),
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
    reported = facts(root, workload=workload, settings=settings)
    assert (reported["steps"], reported["checkpoints_kept"]) == (steps, kept)
    assert reported["checkpoint_space"] == kept * CHECKPOINT


ACTOR, LORA = "actor_rollout_ref.actor", {"actor_rollout_ref.model.lora_rank": 8}


@pytest.mark.parametrize(
    ("settings", "items"),
    [
        ({f"{ACTOR}.checkpoint.save_contents": ["model"]}, 4),
        ({f"{ACTOR}.checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"]}, 16),
        ({f"{ACTOR}.fsdp_config.model_dtype": "bf16"}, 6),
        (LORA, 4),
        ({"actor_rollout_ref.model.lora.rank": 8}, 4),
        ({f"{ACTOR}.checkpoint.save_lora_only": True}, 12),
        ({f"{ACTOR}.checkpoint.save_lora_only": True, **LORA}, 0),
        ({"trainer.total_epochs": "ten"}, 0),
    ],
)
def test_what_a_checkpoint_holds(root: Path, settings: dict[str, Any], items: int) -> None:
    assert facts(root, settings=settings).get("checkpoint_bytes", 0) == 24 * items
    assert keys(root, settings=settings) == []


def test_samples_in_flight_are_saved_as_well(root: Path) -> None:
    lengths = {"data.max_prompt_length": 6, "data.max_response_length": 4, "actor_rollout_ref.rollout.n": 2}
    sizes = facts(root, settings={**lengths, "trainer.v1.trainer_mode": "colocate_async"})
    queue = sizes["checkpoint_bytes"] - CHECKPOINT
    assert queue > 0 and queue % (8 * 2 * 10) == 0
    assert sizes["checkpoint_space"] == facts(root, settings=lengths)["checkpoint_space"] + 2 * queue


@pytest.mark.parametrize(
    ("workload", "epochs", "steps", "step", "expected"),
    [
        # The job has fewer steps than are set.
        ("grpo", 1, 40, 0, [("trainer_overrides", "warning")]),
        ("grpo", 1, 10, 9, []),
        ("grpo", 1, 10, 10, [("resume_from", "error")]),
        ("grpo", 1, None, 15, []),
        ("grpo", 1, None, 16, [("resume_from", "error")]),
        # At the end of an epoch.
        ("sft", 3, None, 16, [("resume_from", "warning")]),
        ("sft", 3, None, 17, []),
        ("sft", 4, 48, 16, []),
        ("sft", 4, 49, 16, [("resume_from", "warning")]),
        # verl's other trainer is not known to skip the next one.
        ("grpo", 3, None, 16, []),
    ],
)
def test_what_is_left_to_train(
    root: Path, workload: str, epochs: int, steps: int | None, step: int, expected: list[tuple[str, str]]
) -> None:
    # The name of the job does not matter.
    path = f"{root}/jobs/global_step-1/checkpoints/global_step_{step}" if step else None
    settings = {"trainer.total_epochs": epochs, "trainer.total_training_steps": steps, "trainer.resume_from_path": path}
    assert keys(root, workload=workload, settings=settings) == expected
    if not step:
        assert facts(root, settings=settings)["checkpoints_kept"] == 1


def remedies(root: Path, key: str, value: Any, workload: str = "grpo") -> list[tuple[str, str]]:
    findings = path_findings(request(root, workload, {key: value}), Facts())
    assert {finding.key for finding in findings} <= {key}
    return [(finding.severity, finding.remedy) for finding in findings]


@pytest.mark.parametrize(
    ("key", "home"),
    [
        ("data.train_files", "datasets"),
        ("actor_rollout_ref.model.path", "common/models"),
        ("trainer.resume_from_path", "jobs"),
    ],
)
def test_paths_outside_the_shared_root(root: Path, tmp_path: Path, key: str, home: str) -> None:
    todo = f"copy it to {home} there, or stage it with stage.yml"
    assert remedies(root, key, f"{tmp_path}/x") == [("error", todo)]
    # This worker has it, but others may not have the same.
    (tmp_path / "x").mkdir()
    assert remedies(root, key, f"{tmp_path}/x") == [("warning", todo)]
    assert remedies(root, key, [f"{tmp_path}/x", f"{root}/x", f"{tmp_path}/y"])[1:] == [("error", todo)]
    assert [remedies(root, key, value) for value in (f"{root}/x", "org/name", None)] == [[]] * 3
    # The other checks do not repeat it.
    if home != "jobs":
        assert keys(root, settings={key: "/no/where.parquet"}) == [(key, "error")]


def test_files_that_settings_name(root: Path, tmp_path: Path) -> None:
    key, file = "actor_rollout_ref.rollout.multi_turn.tool_config_path", root / "user" / "code" / "tools.yaml"
    assert len(remedies(root, key, str(file))) == len(remedies(root, key, f"{tmp_path}/none.yaml")) == 1
    file.write_text("tools: []")
    assert remedies(root, key, str(file)) == remedies(root, key, "relative.yaml") == []
    file.unlink()
    file.symlink_to("/etc/hostname")
    assert "other nodes may not have /etc/hostname" in remedies(root, key, str(file))[0][1]
    # A path that a job writes need not exist, and what it has written is no file of a user.
    assert remedies(root, "global_profiler.save_path", f"{root}/profile") == []
    assert remedies(root, key, f"{root}/jobs/grpo-1/tools.yaml") == []


def test_a_chat_template_is_a_text_and_only_ppo_has_a_critic(root: Path) -> None:
    key = "actor_rollout_ref.model.custom_chat_template"
    assert len(remedies(root, key, f"{root}/user/code/chat.jinja")) == 1
    assert remedies(root, key, "{{ messages }}") == remedies(root, "critic.model.path", "/no/model") == []
    assert len(remedies(root, "critic.model.path", "/no/model", "ppo")) == 1


# --- What every node must see -----------------------------------------------------------------------------------------


def issues(root: Path, *files: Path, **changes: Any) -> list[tuple[str, str]]:
    findings = check_node(request(root, **{"files": {str(file): None for file in files}, **changes}))
    return [(finding.key, finding.problem.replace(str(root), "/private")) for finding in findings]


def test_a_good_node_and_one_without_the_shared_root(root: Path) -> None:
    train, link = root / "datasets/rl/train.parquet", root / "datasets/link.parquet"
    link.symlink_to("rl/train.parquet")
    assert issues(root, train, link, root / "common/models/tiny") == []
    size = train.stat().st_size
    assert issues(root, files={str(train): size, str(link): None}) == []
    ((key, problem),) = issues(root, files={str(train): size + 1})
    assert key == "dataset" and f"has {size} bytes, but {size + 1} bytes on the head" in problem
    assert list((root / "jobs").iterdir()) == []
    assert issues(root, shared_root=f"{root}/elsewhere") == [("shared_root", "/private/elsewhere/jobs does not exist")]


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("common/models/tiny/x", "model"),
        ("datasets/rl/x", "dataset"),
        ("common/code/verl/verl-0.9.1/x", "code_path"),
        ("user/code/x.py", "reward_fn_path"),
        ("hf/x", "shared_root"),
    ],
)
def test_a_node_that_lacks_a_file(root: Path, path: str, key: str) -> None:
    assert issues(root, root / path, reward_file=f"{root}/user/code/x.py") == [(key, f"/private/{path} does not exist")]


def test_links_on_a_node(root: Path, tmp_path: Path) -> None:
    home = root / "common/models"
    (tmp_path / "local").mkdir()
    for name, target, problem in (
        ("dangling", root / "hf/gone", "is a link to /private/hf/gone, which does not exist"),
        ("loop", home / "loop", "cannot be read: "),
        ("outside", tmp_path / "local", f"leads out of the shared root /private, to {tmp_path}/local"),
    ):
        (home / name).symlink_to(target)
        ((key, text),) = issues(root, home / name)
        assert key == "shared_root" and text.startswith(f"/private/common/models/{name} {problem}")


def test_what_a_node_cannot_open(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, real_open = root / "datasets/rl/train.parquet", Path.open

    def refuse(path: Path, *arguments: Any) -> Any:
        if path == file or path.parent == root / "jobs":
            raise PermissionError(13, "Permission denied")
        return real_open(path, *arguments)

    monkeypatch.setattr(Path, "open", refuse)
    findings = check_node(request(root, files={str(file): None}))
    assert [finding.key for finding in findings] == ["shared_root", "dataset"]
    assert all(f"give user ID {os.geteuid()}" in finding.remedy for finding in findings)


@pytest.mark.parametrize(
    ("variable", "severity"),
    [
        ("GLOO_SOCKET_IFNAME=lo", ""),
        ("GLOO_SOCKET_IFNAME=lo,eth99", "error"),
        # gloo compares whole names.
        ("GLOO_SOCKET_IFNAME=^docker", "error"),
        ("NCCL_SOCKET_IFNAME==lo:1,eth99", ""),
        ("NCCL_SOCKET_IFNAME=^docker", ""),
        ("NCCL_SOCKET_IFNAME=eth99,enp99", "warning"),
        ("NCCL_IB_HCA==mlx5_0:1", ""),
        ("NCCL_IB_HCA=mlx5_1,mlx5_2", "warning"),
        ("NCCL_IB_HCA=^mlx5", "warning"),
    ],
)
def test_interfaces_of_a_node(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, severity: str
) -> None:
    (tmp_path / "adapters" / "mlx5_0").mkdir(parents=True)
    monkeypatch.setattr(paths, "ADAPTERS_DIR", tmp_path / "adapters")
    monkeypatch.setattr(paths, "GPU_DEVICES", ())
    name, _equals, value = variable.partition("=")
    findings = check_node(request(root, environment={name: value}))
    assert [(one.key, one.severity) for one in findings] == ([(f"env_vars.{name}", severity)] if severity else [])
    # A node with GPUs uses NCCL.
    monkeypatch.setattr(paths, "GPU_DEVICES", ("/dev/null",))
    findings = check_node(request(root, environment={name: value}))
    expected = "error" if name == "NCCL_SOCKET_IFNAME" and severity else severity
    assert [one.severity for one in findings] == ([expected] if expected else [])
