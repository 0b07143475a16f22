from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from checked_job import keys, request

from argus.checks import paths
from argus.checks.common import Facts
from argus.checks.paths import check_node, path_findings


def said(root: Path, key: str, value: Any, workload: str = "grpo") -> list[tuple[str, str]]:
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
    assert said(root, key, f"{tmp_path}/x") == [("error", todo)]
    # This worker has it, but others may not have the same.
    (tmp_path / "x").mkdir()
    assert said(root, key, f"{tmp_path}/x") == [("warning", todo)]
    assert said(root, key, [f"{tmp_path}/x", f"{root}/x", f"{tmp_path}/y"])[1:] == [("error", todo)]
    assert [said(root, key, value) for value in (f"{root}/x", "org/name", None)] == [[]] * 3


def test_the_other_checks_do_not_repeat_it(root: Path) -> None:
    for key in ("data.train_files", "actor_rollout_ref.model.path"):
        assert keys(root, settings={key: "/no/where.parquet"}) == [(key, "error")]


def test_files_that_settings_name(root: Path, tmp_path: Path) -> None:
    key, file = "actor_rollout_ref.rollout.multi_turn.tool_config_path", root / "user" / "code" / "tools.yaml"
    assert len(said(root, key, str(file))) == len(said(root, key, f"{tmp_path}/none.yaml")) == 1
    file.write_text("tools: []")
    assert said(root, key, str(file)) == said(root, key, "relative.yaml") == []
    file.unlink()
    file.symlink_to("/etc/hostname")
    assert "other nodes may not have /etc/hostname" in said(root, key, str(file))[0][1]
    # What a job writes need not be there, and what it has written is no file of a user.
    assert said(root, "global_profiler.save_path", f"{root}/profile") == []
    assert said(root, key, f"{root}/jobs/grpo-1/tools.yaml") == []


def test_a_chat_template_is_a_text_and_only_ppo_has_a_critic(root: Path) -> None:
    key = "actor_rollout_ref.model.custom_chat_template"
    assert len(said(root, key, f"{root}/user/code/chat.jinja")) == 1
    assert said(root, key, "{{ messages }}") == said(root, "critic.model.path", "/no/model") == []
    assert len(said(root, "critic.model.path", "/no/model", "ppo")) == 1


# --- What every node must see -----------------------------------------------------------------------------------------


def seen(root: Path, *files: Path, **changes: Any) -> list[tuple[str, str]]:
    findings = check_node(request(root, **{"files": {str(file): None for file in files}, **changes}))
    return [(finding.key, finding.problem.replace(str(root), "/private")) for finding in findings]


def test_a_good_node_and_one_without_the_shared_root(root: Path) -> None:
    train, link = root / "datasets/rl/train.parquet", root / "datasets/link.parquet"
    link.symlink_to("rl/train.parquet")
    assert seen(root, train, link, root / "common/models/tiny") == []
    size = train.stat().st_size
    assert seen(root, files={str(train): size, str(link): None}) == []
    ((key, what),) = seen(root, files={str(train): size + 1})
    assert key == "dataset" and f"has {size} bytes, but {size + 1} bytes on the head" in what
    assert list((root / "jobs").iterdir()) == []
    assert seen(root, shared_root=f"{root}/elsewhere") == [("shared_root", "/private/elsewhere/jobs does not exist")]


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
    assert seen(root, root / path, reward_file=f"{root}/user/code/x.py") == [(key, f"/private/{path} does not exist")]


def test_links_on_a_node(root: Path, tmp_path: Path) -> None:
    home = root / "common/models"
    (tmp_path / "local").mkdir()
    for name, target, what in (
        ("dangling", root / "hf/gone", "is a link to /private/hf/gone, which does not exist"),
        ("loop", home / "loop", "cannot be read: "),
        ("outside", tmp_path / "local", f"leads out of the shared root /private, to {tmp_path}/local"),
    ):
        (home / name).symlink_to(target)
        ((key, text),) = seen(root, home / name)
        assert key == "shared_root" and text.startswith(f"/private/common/models/{name} {what}")


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
    monkeypatch.setattr(paths, "ADAPTERS", tmp_path / "adapters")
    monkeypatch.setattr(paths, "GPU_DEVICES", ())
    name, _equals, value = variable.partition("=")
    findings = check_node(request(root, environment={name: value}))
    assert [(each.key, each.severity) for each in findings] == ([(f"env_vars.{name}", severity)] if severity else [])
    # A node with GPUs uses NCCL.
    monkeypatch.setattr(paths, "GPU_DEVICES", ("/dev/null",))
    findings = check_node(request(root, environment={name: value}))
    expected = "error" if name == "NCCL_SOCKET_IFNAME" and severity else severity
    assert [each.severity for each in findings] == ([expected] if expected else [])
