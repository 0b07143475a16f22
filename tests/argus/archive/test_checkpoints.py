"""Which checkpoints are complete."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from argus.archive.checkpoints import Checkpoint, Retention, inspect, last_complete, saved_checkpoints

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


def test_a_complete_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "global_step_10"
    shards(path)
    # Other files are not from torch, or have no rank.
    (path / "data.pt").write_bytes(b"no zip")
    (path / "fsdp_config.json").write_text("{}")
    assert inspect(path, "sft") == Checkpoint(10, path, 2, "")
    # Those of other backends are not checked.
    other = tmp_path / "global_step_20"
    (other / "actor" / "dist_ckpt").mkdir(parents=True)
    (other / "actor" / "dist_ckpt" / "__0_0.distcp").touch()
    assert inspect(other, "grpo") == Checkpoint(20, other, 0, "")


def test_the_samples_that_were_in_flight_belong_to_it(tmp_path: Path) -> None:
    path = tmp_path / "global_step_10"
    shards(path / "actor")
    (path / "transfer_queue.tmp").mkdir()
    assert inspect(path, "grpo").problem
    (path / "transfer_queue.tmp").rename(path / "transfer_queue")
    assert not inspect(path, "grpo").problem


@pytest.mark.parametrize(("workload", "kinds"), [("sft", ("model",)), ("grpo", ("model", "extra_state")), ("ppo", ())])
def test_what_was_saved_without_the_optimizer_is_a_model(tmp_path: Path, workload: str, kinds: tuple[str, ...]) -> None:
    """verl's save_contents: [model], [model, extra] and [hf_model]; with them, it loads no more than it has saved."""
    path = tmp_path / "global_step_10"
    for part in {"sft": ("",), "grpo": ("actor",), "ppo": ("actor", "critic")}[workload]:
        shards(path / part)
        (path / part / "fsdp_config.json").write_text("{}")
        for file in (path / part).glob("*.pt"):
            if not file.name.startswith(kinds or "nothing"):
                file.unlink()
    tracker(tmp_path, 10)
    checkpoint = inspect(path, workload)
    assert checkpoint.is_model and checkpoint.problem and last_complete(tmp_path, workload) is None
    # A truncated one is not even a model.
    for file in [*path.rglob("model_*.pt")][:1]:
        file.write_bytes(b"")
        assert not inspect(path, workload).is_model


def test_all_problems_are_reported_at_once(tmp_path: Path) -> None:
    path = tmp_path / "global_step_10"
    shards(path, 2)
    shards(path, 4)
    assert inspect(path, "sft").world_size == 4 and "shards of 2 and 4 ranks" in inspect(path, "sft").problem
    shards(path / "actor")
    (path / "actor" / "model_world_size_2_rank_0.pt").unlink()
    (path / "actor" / "optim_world_size_2_rank_1.pt").write_bytes(b"PK")
    missing, truncated, empty = inspect(path, "ppo").problem.split("; ")
    assert "no model shard of rank 0" in missing and "optim_world_size_2_rank_1.pt" in truncated and "critic" in empty


def test_the_last_complete_checkpoint_may_precede_a_damaged_one(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        shards(tmp_path / f"global_step_{step}")
    (tmp_path / "global_step_30" / "model_world_size_2_rank_0.pt").write_bytes(b"")
    (tmp_path / "global_step_20" / "optim_world_size_2_rank_0.pt").unlink()
    tracker(tmp_path, 30)
    assert [bool(checkpoint.problem) for checkpoint in saved_checkpoints(tmp_path, "sft")] == [True, True, False]
    assert last_complete(tmp_path, "sft") == Checkpoint(10, tmp_path / "global_step_10", 2, "")
    (tmp_path / "global_step_10" / "model_world_size_2_rank_0.pt").unlink()
    assert last_complete(tmp_path, "sft") is None


def save(directory: Path, step: int, workload: str = "sft") -> None:
    for part in {"sft": ("",), "ppo": ("actor", "critic")}[workload]:
        shards(directory / f"global_step_{step}" / part)
    (directory / f"global_step_{step}" / "data.pt").touch()
    tracker(directory, step)


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """The checkpoints of an attempt that was to keep three."""
    directory = tmp_path / "jobs" / "sft-1" / "checkpoints"
    for step in (10, 20, 30):
        save(directory, step)
    return directory


def left(directory: Path) -> list[int]:
    return sorted(int(path.name.removeprefix("global_step_")) for path in directory.glob("global_step_*"))


def test_all_attempts_together_keep_as_many_as_one(earlier: Path) -> None:
    retention = Retention(earlier, "sft", ["trainer.max_ckpt_to_keep=3"])
    retention.prune()
    assert left(earlier) == [10, 20, 30]
    for step, expected in ((40, [20, 30, 40]), (50, [30, 40, 50]), (60, [40, 50, 60])):
        save(earlier, step)
        retention.prune()
        assert left(earlier) == expected


@pytest.mark.parametrize("interrupted", ["no tracker", "a truncated shard"])
def test_nothing_is_removed_before_another_one_is_whole(earlier: Path, interrupted: str) -> None:
    retention = Retention(earlier, "sft", ["trainer.max_ckpt_to_keep=1"])
    save(earlier, 40)
    if interrupted == "no tracker":
        tracker(earlier, 30)
    else:
        (earlier / "global_step_40" / "optim_world_size_2_rank_1.pt").write_bytes(b"PK")
    retention.prune()
    assert left(earlier) == [10, 20, 30, 40]
    save(earlier, 50)
    retention.prune()
    assert left(earlier) == [50]


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["trainer.max_ckpt_to_keep=0"],
        ["trainer.max_ckpt_to_keep=1", "~trainer.max_ckpt_to_keep"],
        ["trainer.max_actor_ckpt_to_keep=1"],
    ],
)
def test_without_a_limit_all_checkpoints_stay(earlier: Path, overrides: list[str]) -> None:
    retention = Retention(earlier, "sft", overrides)
    save(earlier, 40)
    retention.prune()
    assert left(earlier) == [10, 20, 30, 40]


def test_actor_and_critic_have_limits_of_their_own(tmp_path: Path) -> None:
    directory = tmp_path / "jobs" / "ppo-1" / "checkpoints"
    for step in (2, 4):
        save(directory, step, "ppo")
    kept = ["trainer.max_actor_ckpt_to_keep=3", "trainer.max_critic_ckpt_to_keep=1"]
    retention = Retention(directory, "ppo", kept)
    for step in (6, 8):
        save(directory, step, "ppo")
        retention.prune()
    assert sorted(path.parent.name for path in directory.glob("*/actor")) == [f"global_step_{n}" for n in (4, 6, 8)]
    assert [path.parent.name for path in directory.glob("*/critic")] == ["global_step_8"]
    # verl also leaves the state of the data loader of each.
    assert left(directory) == [2, 4, 6, 8]


def test_nothing_elsewhere_is_removed(earlier: Path, tmp_path: Path) -> None:
    """A job may put links in the place of its checkpoints."""
    victim = tmp_path / "victim"
    shards(victim / "global_step_10")
    (earlier / "global_step_10").rename(tmp_path / "moved")
    (earlier / "global_step_10").symlink_to(victim / "global_step_10")
    retention = Retention(earlier, "sft", ["trainer.max_ckpt_to_keep=1"])
    save(earlier, 40)
    retention.prune()
    assert len(list(victim.rglob("*.pt"))) == 6 and left(earlier) == [10, 40]
