from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import checked_job
import pytest

from argus.checks import paths
from argus.checks.paths import check_node


def seen(root: Path, *files: Path, **changes: Any) -> list[tuple[str, str, str]]:
    asked = {"files": {str(file): None for file in files}, **changes}
    findings = check_node(checked_job.request(root, **asked))
    return [(finding.key, finding.what.replace(str(root), "/private"), finding.todo) for finding in findings]


def test_a_good_node(root: Path) -> None:
    train = root / "datasets/rl/train.parquet"
    link = root / "datasets/link.parquet"
    link.symlink_to("rl/train.parquet")
    assert seen(root, train, link, root / "common/models/tiny") == []
    assert seen(root, files={str(train): train.stat().st_size, str(link): None}) == []
    assert list((root / "jobs").iterdir()) == []


def test_a_node_without_the_shared_root(root: Path) -> None:
    ((where, what, todo),) = seen(root, shared_root=f"{root}/elsewhere")
    assert (where, what) == ("shared_root", "/private/elsewhere/jobs does not exist")
    assert todo == "mount the shared root at this path on every node, then run cluster_up.yml"


def test_a_node_that_sees_another_size(root: Path) -> None:
    file = root / "datasets/rl/train.parquet"
    size = file.stat().st_size
    ((where, what, _todo),) = seen(root, files={str(file): size + 1})
    name = "/private/datasets/rl/train.parquet"
    assert (where, what) == ("dataset", f"{name} has {size} bytes, but {size + 1} bytes on the head")


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
        (key, f"/private/{path} does not exist", "check that all nodes mount the same file system")
    ]


def test_links_on_a_node(root: Path, tmp_path: Path) -> None:
    home = root / "common/models"
    (home / "dangling").symlink_to(root / "hf/gone")
    (home / "loop").symlink_to(home / "loop")
    (tmp_path / "local").mkdir()
    (home / "outside").symlink_to(tmp_path / "local")
    assert [each[:2] for each in seen(root, home / "dangling")] == [
        ("shared_root", "/private/common/models/dangling is a link to /private/hf/gone, which does not exist")
    ]
    assert [each[:2] for each in seen(root, home / "outside")] == [
        ("shared_root", f"/private/common/models/outside leads out of the shared root /private, to {tmp_path}/local")
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
            f"give user ID {os.geteuid()} write permission, and check that the file system is not full",
        )
    ]


def test_a_file_that_cannot_be_opened(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = root / "datasets/rl/train.parquet"
    real_open = Path.open

    def refuse(path: Path, *arguments: Any) -> Any:
        if path == file:
            raise PermissionError(13, "Permission denied")
        return real_open(path, *arguments)

    monkeypatch.setattr(Path, "open", refuse)
    ((key, what, todo),) = seen(root, file)
    assert (key, what.partition(": ")[0]) == ("dataset", "/private/datasets/rl/train.parquet cannot be read")
    assert todo == f"give user ID {os.geteuid()} read permission, and check the file system"


@pytest.mark.parametrize(
    ("variable", "severity"),
    [
        ("GLOO_SOCKET_IFNAME=lo", ""),
        ("GLOO_SOCKET_IFNAME=lo,eth99", "error"),
        # gloo compares whole names.
        ("GLOO_SOCKET_IFNAME=^docker", "error"),
        ("GLOO_SOCKET_IFNAME==lo", "error"),
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
    found = check_node(checked_job.request(root, environment={name: value}))
    assert [(finding.key, finding.severity) for finding in found] == (
        [(f"env_vars.{name}", severity)] if severity else []
    )


def test_nccl_of_a_node_with_gpus(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "GPU_DEVICES", ("/dev/null",))
    (finding,) = check_node(checked_job.request(root, environment={"NCCL_SOCKET_IFNAME": "eth99"}))
    assert (finding.severity, " lo" in finding.what) == ("error", True)
