"""Checkpoints of jobs as models."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hub import model
from staging_models import source_of
from staging_tools import manifest_json, stage

from argus.staging import models
from argus.staging.checkpoint import CheckpointSource, MergeRequest
from argus.staging.lock import Progress
from argus.staging.manifest import Status
from argus.staging.options import StagingError

JOB = "grpo-1"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A shared root with a job that has saved steps 10 and 12."""
    archive = tmp_path / "jobs" / JOB
    (archive / "config").mkdir(parents=True)
    plan = {"workload": "grpo", "code_path": f"{tmp_path}/common/code/verl/verl-0.9.1", "code_id": "verl-0.9.1"}
    (archive / "config/plan.json").write_text(json.dumps(plan))
    for step in (10, 12):
        save(archive / f"checkpoints/global_step_{step}/actor")
    (archive / "checkpoints/latest_checkpointed_iteration.txt").write_text("12")
    merger = tmp_path / "common/code/verl/verl-0.9.1/verl/model_merger"
    merger.mkdir(parents=True)
    (merger / "__main__.py").touch()
    return tmp_path


def save(directory: Path, ranks: int = 2) -> None:
    (directory / "huggingface").mkdir(parents=True)
    (directory / "fsdp_config.json").write_text("{}")
    for rank in range(ranks):
        for kind in ("model", "optim"):
            with zipfile.ZipFile(directory / f"{kind}_world_size_{ranks}_rank_{rank}.pt", "w") as file:
                file.writestr("data", kind)


def change(root: Path, **values: Any) -> None:
    file = root / "jobs" / JOB / "config/plan.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


class Merger:
    """Writes a model as verl does, and keeps what it was asked for."""

    def __init__(self, then: Callable[[Path], None] = lambda _target: None, code: int = 0, output: str = "") -> None:
        self.then, self.code, self.output = then, code, output
        self.asked: list[MergeRequest] = []

    def __call__(self, request: MergeRequest, progress: Progress) -> tuple[int, str]:
        self.asked.append(request)
        for name, content in model().items():
            (request.target / name).write_bytes(content)
            (request.target / name).chmod(0o600)
        self.then(request.target)
        return self.code, self.output


def export(
    root: Path, merger: Merger | None = None, step: int | None = None, name: str | None = None, **how: bool
) -> Any:
    source = CheckpointSource(root, JOB, step, merger or Merger())
    return stage(models.request(root, name, source), **how)


def refused(root: Path, merger: Merger | None = None, **how: Any) -> str:
    with pytest.raises(StagingError) as error:
        export(root, merger, **how)
    directory = root / "common/models"
    # It leaves nothing, and no lock.
    assert not directory.exists() or [path.name for path in directory.iterdir() if path.name != "taken"] == []
    return str(error.value)


def test_the_last_checkpoint_becomes_a_model_with_its_job_as_source(root: Path) -> None:
    merger = Merger()
    staged = export(root, merger)
    target = root / "common/models" / f"{JOB}-step-12"
    assert (staged.path, staged.status, staged.kind) == (str(target), Status.STAGED, "model")
    found = manifest_json(target)
    wanted = {"source": f"job:{JOB}@12", "job": JOB, "step": 12, "code_id": "verl-0.9.1", "name": f"{JOB}-step-12"}
    assert {key: found[key] for key in wanted} == wanted
    assert sorted(found["files"]) == sorted(model())
    assert {(target / name).stat().st_mode & 0o777 for name in model()} == {0o644}
    (asked,) = merger.asked
    checkpoint = root / "jobs" / JOB / "checkpoints/global_step_12/actor"
    assert (asked.checkpoint, asked.code_path) == (str(checkpoint), f"{root}/common/code/verl/verl-0.9.1")
    assert asked.hf_home == f"{root}/hf"
    assert asked.size == sum(file.stat().st_size for file in checkpoint.glob("model_*.pt")) > 0
    # The second run merges nothing, even when the archive is gone.
    assert export(root, merger).status == Status.EXISTS
    (root / "jobs" / JOB).rename(root / "gone")
    assert export(root, merger, name=f"{JOB}-step-12").status == Status.EXISTS
    assert export(root, merger, step=12).status == Status.EXISTS
    assert len(merger.asked) == 1


def test_an_earlier_step_under_a_name_of_ones_own(root: Path) -> None:
    assert export(root, step=10, name="sums").path == f"{root}/common/models/sums"
    assert manifest_json(root / "common/models/sums")["source"] == f"job:{JOB}@10"
    with pytest.raises(StagingError, match=rf"contains job:{JOB}@10, not job:{JOB}@12\."):
        export(root, name="sums")


def test_check_mode_merges_nothing(root: Path) -> None:
    merger = Merger()
    assert export(root, merger, check=True).status == Status.STAGED
    assert merger.asked == [] and not (root / "common/models").exists()


def test_a_model_without_its_optimizer_is_exported_with_the_adapter_that_it_began_with(root: Path) -> None:
    actor = root / "jobs" / JOB / "checkpoints/global_step_12/actor"
    for file in actor.glob("optim_*.pt"):
        file.unlink()
    change(root, overrides=["actor_rollout_ref.model.lora_adapter_path=/private/common/models/adapter"])
    merger = Merger()
    assert export(root, merger).path.endswith("-step-12")
    assert merger.asked[0].adapter == "/private/common/models/adapter"
    for file in actor.glob("model_*.pt"):
        file.unlink()
    assert "huggingface is a model" in refused_step(root, 12)


@pytest.mark.parametrize("workload", ["sft", "ppo"])
def test_the_part_that_is_merged(root: Path, workload: str) -> None:
    change(root, workload=workload)
    step = root / "jobs" / JOB / "checkpoints/global_step_12"
    save(step if workload == "sft" else step / "critic")
    merger = Merger()
    export(root, merger)
    assert merger.asked[0].checkpoint == str(step if workload == "sft" else step / "actor")


def test_an_incomplete_checkpoint_is_passed_over_unless_it_is_asked_for(root: Path) -> None:
    (root / "jobs" / JOB / "checkpoints/global_step_12/actor/model_world_size_2_rank_1.pt").write_bytes(b"half")
    assert export(root).path.endswith("-step-10")
    assert "model_world_size_2_rank_1.pt is truncated" in (refused_later := refused_step(root, 12))
    assert "has no complete checkpoint" in refused_later
    assert "has no checkpoint of step 11." in refused_step(root, 11)


def refused_step(root: Path, step: int) -> str:
    with pytest.raises(StagingError) as error:
        export(root, step=step, name="other")
    return str(error.value)


def test_a_job_without_a_checkpoint(root: Path) -> None:
    (root / "jobs" / JOB / "checkpoints/latest_checkpointed_iteration.txt").unlink()
    assert f"job:{JOB}: has no complete checkpoint: it saved none." in refused(root)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        ({"code_path": "/etc"}, 'code_path "/etc": is not below'),
        ({"code_path": "ROOT/common/code/verl/../../../../etc"}, "is not below"),
        ({"code_path": "ROOT/common/code/verl/other"}, "has no verl/model_merger/"),
        ({"workload": ""}, f"there is no job {JOB}"),
        ({"workload": 7}, "cannot be read"),
    ],
)
def test_archives_that_cannot_be_merged(root: Path, values: dict[str, Any], what: str) -> None:
    change(
        root,
        **{key: value.replace("ROOT", str(root)) if isinstance(value, str) else value for key, value in values.items()},
    )
    assert what in refused(root)


@pytest.mark.parametrize("missing", ["fsdp_config.json", "huggingface"])
def test_checkpoints_of_other_backends_are_refused(root: Path, missing: str) -> None:
    path = root / "jobs" / JOB / "checkpoints/global_step_12/actor" / missing
    path.rename(path.with_name("other"))
    assert f"has no {missing}: it was not saved by verl's FSDP" in refused(root)


def test_the_last_lines_of_a_merge_that_fails_are_shown_without_control_characters(root: Path) -> None:
    output = "".join(f"line {number}\n" for number in range(20)) + "ImportError: \x1b[2Jno\n"
    text = refused(root, Merger(code=1, output=output))
    assert "exit code 1" in text and "ImportError: " in text and "\x1b" not in text
    assert "line 9\n" in text and "line 8\n" not in text


def test_what_the_code_of_a_job_writes_is_checked(root: Path) -> None:
    secret = root / "secret"
    secret.write_text("secret")
    assert "extra is a link" in refused(root, Merger(lambda target: (target / "extra").symlink_to(secret)))
    assert "would not be a complete model" in refused(root, Merger(lambda target: (target / "config.json").unlink()))
    assert secret.read_text() == "secret"
    # A manifest of its own is replaced by ours.
    staged = export(root, Merger(lambda target: (target / "manifest.json").write_text("{}")))
    assert "manifest.json" not in manifest_json(Path(staged.path))["files"]


def test_the_source_of_the_module() -> None:
    source = source_of("job:grpo-1@12", Path("/private"))
    assert source == CheckpointSource(Path("/private"), "grpo-1", 12)
    for last in ("job:grpo-1", "job:grpo-1@0"):
        assert source_of(last, Path("/private")) == CheckpointSource(Path("/private"), "grpo-1")
    for text in ("job:", "job:../x", "job:a@", "job:a@01", "job:a@-1", "job:A"):
        with pytest.raises(StagingError, match="names no job"):
            source_of(text, Path("/private"))
