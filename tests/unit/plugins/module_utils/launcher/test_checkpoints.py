"""Which checkpoints are complete."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from ansible_collections.argus.verl.plugins.module_utils.launcher.checkpoints import (
    Checkpoint,
    finished,
    inspect,
    last_complete,
)

KINDS = ("model", "optim", "extra_state")


def shards(directory: Path, size: int = 2) -> None:
    """The shards of every rank, as torch writes them."""
    directory.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        for rank in range(size):
            with zipfile.ZipFile(directory / f"{kind}_world_size_{size}_rank_{rank}.pt", "w") as file:
                file.writestr("archive/data.pkl", bytes(2000))


def tracker(directory: Path, step: object) -> None:
    (directory / "latest_checkpointed_iteration.txt").write_text(str(step))


def steps(directory: Path, workload: str = "sft") -> list[int]:
    return [checkpoint.step for checkpoint in finished(directory, workload)]


def test_a_complete_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "global_step_10"
    shards(path)
    # Other files are not from torch, or have no rank.
    (path / "data.pt").write_bytes(b"no zip")
    (path / "fsdp_config.json").write_text("{}")
    assert inspect(path, "sft") == Checkpoint(10, path, 2, "")


@pytest.mark.parametrize(("workload", "part"), [("sft", ""), ("grpo", "actor"), ("ppo", "actor"), ("ppo", "critic")])
def test_the_places_of_each_workload(tmp_path: Path, workload: str, part: str) -> None:
    path = tmp_path / "global_step_1"
    for name in {"sft": ("",), "grpo": ("actor",), "ppo": ("actor", "critic")}[workload]:
        shards(path / name)
    assert inspect(path, workload).problem == ""
    (path / part / "model_world_size_2_rank_0.pt").unlink()
    assert inspect(path, workload).problem == f"{path / part} has no model shard of rank 0 of 2"


def test_ranks_that_are_missing(tmp_path: Path) -> None:
    path = tmp_path / "global_step_10"
    shards(path, 4)
    for rank in (1, 3):
        (path / f"optim_world_size_4_rank_{rank}.pt").unlink()
    assert inspect(path, "sft") == Checkpoint(10, path, 4, f"{path} has no optim shard of rank 1, 3 of 4")


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_a_truncated_file(tmp_path: Path, size: int) -> None:
    path = tmp_path / "global_step_10"
    shards(path)
    file = path / "model_world_size_2_rank_1.pt"
    file.write_bytes(file.read_bytes()[:size])
    assert inspect(path, "sft").problem == f"{file} is truncated"


def test_shards_of_several_runs(tmp_path: Path) -> None:
    path = tmp_path / "global_step_10"
    shards(path, 2)
    shards(path, 4)
    found = inspect(path, "sft")
    assert (found.world_size, found.problem) == (4, f"{path} has shards of 2 and 4 ranks")


def test_an_actor_and_a_critic_of_different_sizes(tmp_path: Path) -> None:
    path = tmp_path / "global_step_10"
    shards(path / "actor", 2)
    shards(path / "critic", 4)
    assert inspect(path, "ppo").problem == f"{path} has shards of 2 and 4 ranks"


def test_a_missing_critic(tmp_path: Path) -> None:
    path = tmp_path / "global_step_10"
    shards(path / "actor")
    assert inspect(path, "ppo") == Checkpoint(10, path, 2, f"{path / 'critic'} is empty")
    assert inspect(path, "grpo").problem == ""


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "global_step_10"
    shards(path / "actor")
    (path / "actor" / "model_world_size_2_rank_0.pt").unlink()
    (path / "actor" / "optim_world_size_2_rank_1.pt").write_bytes(b"PK")
    assert inspect(path, "ppo").problem.split("; ") == [
        f"{path}/actor has no model shard of rank 0 of 2",
        f"{path}/actor/optim_world_size_2_rank_1.pt is truncated",
        f"{path}/critic is empty",
    ]


def test_checkpoints_of_other_backends_are_not_checked(tmp_path: Path) -> None:
    path = tmp_path / "global_step_10"
    (path / "actor" / "dist_ckpt").mkdir(parents=True)
    (path / "actor" / "dist_ckpt" / "__0_0.distcp").touch()
    assert inspect(path, "grpo") == Checkpoint(10, path, 0, "")


# --- All of a job -----------------------------------------------------------------------------------------------------


def test_without_verls_tracker_there_is_no_checkpoint(tmp_path: Path) -> None:
    shards(tmp_path / "global_step_10")
    assert steps(tmp_path) == []
    assert last_complete(tmp_path, "sft") is None
    tracker(tmp_path, "")
    assert steps(tmp_path) == []
    assert last_complete(tmp_path / "none", "sft") is None


def test_the_newest_comes_first(tmp_path: Path) -> None:
    for step in (9, 10, 100):
        shards(tmp_path / f"global_step_{step}")
    tracker(tmp_path, "100\n")
    assert steps(tmp_path) == [100, 10, 9]


def test_a_checkpoint_that_verl_had_not_finished_does_not_count(tmp_path: Path) -> None:
    for step in (10, 20):
        shards(tmp_path / f"global_step_{step}")
    tracker(tmp_path, 10)
    assert steps(tmp_path) == [10]


def test_directories_with_other_names_do_not_count(tmp_path: Path) -> None:
    for name in ("global_step_10", "global_step_11.tmp2", "global_step_tmp3", "global_step_"):
        shards(tmp_path / name)
    tracker(tmp_path, 100)
    assert steps(tmp_path) == [10]


def test_the_last_complete_checkpoint_may_precede_a_damaged_one(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        shards(tmp_path / f"global_step_{step}")
    (tmp_path / "global_step_30" / "model_world_size_2_rank_0.pt").write_bytes(b"")
    (tmp_path / "global_step_20" / "optim_world_size_2_rank_0.pt").unlink()
    tracker(tmp_path, 30)
    assert [bool(checkpoint.problem) for checkpoint in finished(tmp_path, "sft")] == [True, True, False]
    assert last_complete(tmp_path, "sft") == Checkpoint(10, tmp_path / "global_step_10", 2, "")
    (tmp_path / "global_step_10" / "model_world_size_2_rank_0.pt").unlink()
    assert last_complete(tmp_path, "sft") is None
