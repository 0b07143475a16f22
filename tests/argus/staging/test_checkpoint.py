"""Checkpoints of jobs as models, and what merges them."""

from __future__ import annotations

import json
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hub import model
from staging_models import source_of
from staging_store import manifest_json, stage

from argus.staging import models
from argus.staging.checkpoint import CheckpointSource, MergeRequest, no_room_problem
from argus.staging.lock import Progress
from argus.staging.manifest import Status
from argus.staging.merging import MAX_OUTPUT_BYTES, merge
from argus.staging.options import StagingError

JOB, GIB = "grpo-1", 1 << 30


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


@pytest.fixture
def last(root: Path) -> Path:
    return root / "jobs" / JOB / "checkpoints/global_step_12/actor"


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
    """Writes a model as verl does, and keeps its requests."""

    def __init__(self, then: Callable[[Path], object] = bool, code: int = 0, output: str = "") -> None:
        self.then, self.code, self.output = then, code, output
        self.requests: list[MergeRequest] = []

    def __call__(self, request: MergeRequest, progress: Progress) -> tuple[int, str]:
        self.requests.append(request)
        for name, content in model().items():
            (request.target / name).write_bytes(content)
            (request.target / name).chmod(0o600)
        self.then(request.target)
        return self.code, self.output


def export(
    root: Path, merger: Merger | None = None, step: int | None = None, name: str | None = None, **how: bool
) -> Any:
    source = CheckpointSource(root, JOB, step, merger or Merger())
    return stage(models.build_request(root, name, source), **how)


def refused(root: Path, merger: Merger | None = None, **how: Any) -> str:
    with pytest.raises(StagingError) as error:
        export(root, merger, **how)
    # It leaves nothing, and no lock.
    assert not list((root / "common/models").glob("*"))
    return str(error.value)


def test_the_last_checkpoint_becomes_a_model_with_its_job_as_source(root: Path, last: Path) -> None:
    merger = Merger()
    assert export(root, merger, check=True).status == Status.STAGED
    assert merger.requests == [] and not (root / "common/models").exists()
    staged = export(root, merger)
    target = root / "common/models" / f"{JOB}-step-12"
    assert (staged.path, staged.status, staged.kind) == (str(target), Status.STAGED, "model")
    manifest = manifest_json(target)
    expected = {"source": f"job:{JOB}@12", "job": JOB, "step": 12, "code_id": "verl-0.9.1", "name": f"{JOB}-step-12"}
    assert expected.items() <= manifest.items() and sorted(manifest["files"]) == sorted(model())
    assert {(target / name).stat().st_mode & 0o777 for name in model()} == {0o644}
    (request,) = merger.requests
    assert (request.checkpoint, request.code_path) == (str(last), f"{root}/common/code/verl/verl-0.9.1")
    assert request.hf_home == f"{root}/hf"
    assert request.size_bytes == sum(file.stat().st_size for file in last.glob("model_*.pt")) > 0
    assert export(root, step=10, name="sums").path == f"{root}/common/models/sums"
    with pytest.raises(StagingError, match=rf"contains job:{JOB}@10, not job:{JOB}@12\."):
        export(root, name="sums")
    # The second run merges nothing, even when the archive is gone.
    assert export(root, merger).status == Status.EXISTS
    (root / "jobs" / JOB).rename(root / "gone")
    assert export(root, merger, name=f"{JOB}-step-12").status == Status.EXISTS
    assert export(root, merger, step=12).status == Status.EXISTS
    assert len(merger.requests) == 1


def test_the_adapter_with_which_the_training_began(root: Path, last: Path) -> None:
    for file in last.glob("optim_*.pt"):
        file.unlink()
    change(root, overrides=["actor_rollout_ref.model.lora_adapter_path=/private/common/models/adapter"])
    merger = Merger()
    assert export(root, merger, name="one").status == Status.STAGED
    change(root, overrides=["actor_rollout_ref.model.lora_adapter_path=null"])
    export(root, merger, name="two")
    assert [request.adapter for request in merger.requests] == ["/private/common/models/adapter", ""]
    for file in last.glob("model_*.pt"):
        file.unlink()
    with pytest.raises(StagingError, match="huggingface is a model"):
        export(root, step=12, name="other")


@pytest.mark.parametrize("workload", ["sft", "ppo"])
def test_the_part_that_is_merged(root: Path, last: Path, workload: str) -> None:
    change(root, workload=workload)
    part = last.parent if workload == "sft" else last
    save(last.parent if workload == "sft" else last.parent / "critic")
    merger = Merger()
    export(root, merger)
    assert merger.requests[0].checkpoint == str(part)


def test_an_incomplete_checkpoint_is_passed_over_unless_it_is_asked_for(root: Path, last: Path) -> None:
    (last / "model_world_size_2_rank_1.pt").write_bytes(b"half")
    assert "model_world_size_2_rank_1.pt is truncated" in refused(root, step=12)
    assert "has no checkpoint of step 11." in refused(root, step=11)
    assert export(root).path.endswith("-step-10")


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"code_path": "/etc"}, 'code_path "/etc": is not below'),
        ({"code_path": "ROOT/common/code/verl/../../../../etc"}, "is not below"),
        ({"code_path": "ROOT/common/code/verl/other"}, "has no verl/model_merger/"),
        ({"workload": ""}, f"there is no job {JOB}"),
        ({"workload": 7}, "cannot be read"),
        ({"missing": "fsdp_config.json"}, "has no fsdp_config.json: it was not saved by verl's FSDP"),
        ({"missing": "huggingface"}, "has no huggingface: it was not saved by verl's FSDP"),
        ({"missing": "../../latest_checkpointed_iteration.txt"}, "has no complete checkpoint: it saved none."),
    ],
)
def test_what_cannot_be_merged(root: Path, last: Path, values: dict[str, Any], problem: str) -> None:
    if missing := values.pop("missing", ""):
        (last / missing).rename(last / "other")
    change(root, **{key: str(value).replace("ROOT", str(root)) if value != 7 else 7 for key, value in values.items()})
    assert problem in refused(root)


def test_the_last_lines_of_a_merge_that_fails_are_shown_without_control_characters(root: Path) -> None:
    output = "".join(f"line {number}\n" for number in range(20)) + "ImportError: \x1b[2Jno\n"
    text = refused(root, Merger(code=1, output=output))
    assert "line 9\n" in text and "line 8\n" not in text and "ImportError: " in text and "\x1b" not in text


def test_what_the_code_of_a_job_writes_is_checked(root: Path) -> None:
    assert "extra is a link" in refused(root, Merger(lambda target: (target / "extra").symlink_to("/etc/passwd")))
    assert "would not be a complete model" in refused(root, Merger(lambda target: (target / "config.json").unlink()))
    # A manifest of its own is replaced by ours.
    staged = export(root, Merger(lambda target: (target / "manifest.json").write_text("{}")))
    assert "manifest.json" not in manifest_json(Path(staged.path))["files"]


# --- A program in the place of verl's merger --------------------------------------------------------------------------


def run(code: Path, program: str, seconds: float) -> tuple[int, str]:
    merger = code / "verl/model_merger"
    merger.mkdir(parents=True)
    for name, text in (("../__init__.py", ""), ("__init__.py", ""), ("__main__.py", textwrap.dedent(program))):
        (merger / name).write_text(text)
    return merge(str(code), "/checkpoint", str(code / "target"), "/hf", seconds)


def node(name: str, cpus: float, memory: float, worker: float = 100) -> dict[str, object]:
    return {"NodeName": name, "Resources": {"CPU": cpus, "memory": memory, "worker_node": worker}}


def test_a_worker_needs_enough_of_everything() -> None:
    needs = MergeRequest("job:a@1", 1, "", "", "", "", 3 * GIB).resources
    assert needs == {"CPU": 2, "worker_node": 1, "memory": 8 * GIB}
    assert no_room_problem(needs, [node("w0", 1, 99 * GIB), node("w1", 2, 8 * GIB)]) == ""
    for nodes in ([node("w0", 1, 99 * GIB), node("w1", 99, 8 * GIB - 1)], [node("head", 99, 99 * GIB, worker=0)], []):
        assert no_room_problem(needs, nodes).startswith("needs 2 CPUs and 8.0 GiB of memory on one worker")


def test_verls_merger_gets_the_snapshot_and_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/other")
    code, output = run(
        tmp_path,
        """
        import json, os, sys
        print("x" * 1_000_000)
        names = ("PYTHONPATH", "HF_HOME", "HF_HUB_OFFLINE", "CUDA_VISIBLE_DEVICES", "PYTHONDONTWRITEBYTECODE")
        print(json.dumps([sys.argv[1:], *(os.environ[name] for name in names), os.getcwd(), "" in sys.path]))
        raise SystemExit(3)
        """,
        60,
    )
    arguments = ["merge", "--backend", "fsdp", "--local_dir", "/checkpoint", "--target_dir", f"{tmp_path}/target"]
    assert json.loads(output.splitlines()[1]) == [arguments, f"{tmp_path}:/other", "/hf", "1", "", "1", "/", False]
    assert code == 3 and len(output.encode()) <= MAX_OUTPUT_BYTES


def test_a_merge_that_hangs_is_ended_with_what_it_has_started(tmp_path: Path) -> None:
    assert run(tmp_path, "import subprocess; subprocess.run(['sleep', '60'])", seconds=1.0) == (-9, "")


@pytest.mark.parametrize("text", ["job:", "job:../x", "job:a@", "job:a@01", "job:A"])
def test_a_source_that_names_no_job(tmp_path: Path, text: str) -> None:
    """Its id becomes a part of a path."""
    with pytest.raises(StagingError, match="names no job"):
        source_of(text, tmp_path)
