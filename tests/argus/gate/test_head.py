from __future__ import annotations

import os
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
from gate_job import CODE, parsed, snapshot

from argus.archive.archive import Archive
from argus.archive.checkpoints import Checkpoint
from argus.checks.common import read_verl_version
from argus.common.findings import Finding
from argus.gate.gate import (
    file_findings,
    read_marker,
    resume_findings,
)
from argus.jobspec.verl_releases import profile_of, refusal


def found(root: Path, **changes: Any) -> list[Finding]:
    return file_findings(parsed(root, **changes))


def missing(root: Path, key: str, file: str) -> Finding:
    return Finding(
        key,
        f"{file} does not exist",
        f"stage it with stage.yml, copy it into the shared root {root}, or correct {key}",
        key=key,
    )


def about_resume(what: str, todo: str) -> Finding:
    return Finding("resume_from", what, todo, key="resume_from")


# --- Files ---------------------------------------------------------------------------------------------


def test_a_job_whose_files_exist(root: Path) -> None:
    assert found(root) == []
    assert found(root, workload="sft", reward_fn_path=None) == []
    absolute = {
        "code_path": f"{root}/common/code/verl/verl-0.9.1",
        "model": f"{root}/common/models/tiny",
        "dataset": f"{root}/datasets/gsm8k",
        "reward_fn_path": f"{root}/user/code/r.py:digit_share",
    }
    assert found(root, **absolute) == []


@pytest.mark.parametrize(
    ("key", "name", "meant"),
    [("model", "tinny", "tiny"), ("dataset", "gsm8", "gsm8k"), ("reward_fn_path", "R.py", "r.py")],
)
def test_a_misspelt_input_is_recognised(root: Path, key: str, name: str, meant: str) -> None:
    findings = found(root, **{key: name})
    assert {finding.todo for finding in findings if finding.key == key} == {f'did you mean "{meant}"?'}


def test_an_input_without_its_file_is_not_misspelt(root: Path) -> None:
    (root / "datasets/gsm8k/val.parquet").unlink()
    assert found(root) == [missing(root, "dataset", f"{root}/datasets/gsm8k/val.parquet")]


def test_another_shared_root_is_the_only_finding(tmp_path: Path) -> None:
    assert found(tmp_path) == [
        Finding(
            "shared_root",
            f"{tmp_path}/jobs does not exist on the head",
            "set shared_root to the path at which nodes see it; cluster_up.yml creates jobs/ in it",
            key="shared_root",
        )
    ]


def test_a_missing_snapshot_lists_those_there(root: Path) -> None:
    home = root / "common" / "code" / "verl"
    snapshot(home / "verl-0.9.0", "0.9.0")
    snapshot(home / ".verl-0.9.2.staging-12345678", "0.9.2")
    (home / "README").touch()
    assert found(root, code_path="verl-0.9.2") == [
        Finding(
            "code_path",
            f"there is no snapshot {home}/verl-0.9.2",
            "stage it with stage.yml, or use one that exists: verl-0.9.0, verl-0.9.1",
            key="code_path",
        )
    ]


def test_a_missing_snapshot_where_there_is_none(root: Path) -> None:
    (finding,) = found(root, code_path=f"{root}/elsewhere/verl")
    assert finding.todo == "stage it with stage.yml"


@pytest.mark.parametrize(
    "marker",
    [
        *(None, "", "MARKER = = 1", "OTHER = 1", "raise ValueError(1)", "import there_is_no_such_module", "MARKER = 1"),
        *(
            'MARKER = "a" + "b"',
            'MARKER = f"{1}"',
            'MARKER = OTHER = "a"',
            'if 1: MARKER = "a"',
            'MARKER = ""',
            "MARKER = b'a'",
        ),
        *(
            'MARKER = "a/../b"',
            'MARKER = "a\\x1b[2J"',
            "MARKER = '" + "a" * 64 + "'",
            "-" * 4000 + "1",
            "(" * 4000,
            "\0",
        ),
        'MARKER = "a"' + " " * 5000,
    ],
)
def test_a_snapshot_without_a_marker(root: Path, marker: str | None) -> None:
    path = root / "common" / "code" / "verl" / "plain"
    snapshot(path, marker=marker or "")
    if marker is None:
        (path / "mvp_marker.py").unlink()
    assert found(root, code_path="plain") == [
        Finding(
            "code_path",
            f"{path} has no mvp_marker.py with a MARKER",
            "use a snapshot from stage.yml: a plain directory may change under a running job",
            key="code_path",
        )
    ]


def test_no_code_of_a_snapshot_runs_on_the_head(root: Path) -> None:
    path = root / CODE
    proof = root / "ran"
    (path / "mvp_marker.py").write_text(f'open("{proof}", "w")\nMARKER = "verl-0.9.1"\n')
    (path / "verl" / "__init__.py").write_text(f'open("{proof}", "w")\n')
    (path / "sitecustomize.py").write_text(f'open("{proof}", "w")\n')
    assert found(root) == []
    assert read_marker(path) == "verl-0.9.1"
    assert not proof.exists()


@pytest.mark.parametrize("name", ["mvp_marker.py", "verl/version/version"])
@pytest.mark.parametrize("kind", ["dangling", "fifo", "directory", "large", "device"])
def test_files_of_a_snapshot_that_are_something_else(root: Path, name: str, kind: str) -> None:
    file = root / CODE / name
    original = root / "original"
    file.rename(original)
    if kind == "large":
        file.write_bytes(original.read_bytes() + b"#" * (64 << 20))
    elif kind == "fifo":
        os.mkfifo(file)
    elif kind == "directory":
        file.mkdir()
    else:
        file.symlink_to({"dangling": root / "nothing", "device": Path("/dev/zero")}[kind])
    started = time.monotonic()
    (finding,) = found(root)
    assert time.monotonic() - started < 20
    assert finding.key == "code_path"
    known = "has no mvp_marker.py with a MARKER" if name == "mvp_marker.py" else "contains verl unknown, which is not"
    assert known in finding.what


@pytest.mark.parametrize("version", ["0.5.0", "0.7.1", "0.10.0", "1.0"])
def test_a_version_of_verl_that_is_not_supported(root: Path, version: str) -> None:
    path = root / "common" / "code" / "verl" / "other"
    snapshot(path, version)
    (finding,) = found(root, code_path="other")
    assert (finding.where, finding.what) == ("code_path", f"{path} contains verl {version}, which is not supported")
    assert finding.todo == refusal(version)


@pytest.mark.parametrize("version", ["0.8.0", "0.9.2"])
def test_supported_versions_of_verl(root: Path, version: str) -> None:
    path = root / "common" / "code" / "verl" / "other"
    snapshot(path, version)
    assert found(root, code_path="other") == []
    profile = profile_of(read_verl_version(path) or "")
    assert profile
    assert profile.version == version


def test_what_the_snapshots_verl_does_not_read(root: Path) -> None:
    snapshot(root / "common" / "code" / "verl" / "other", "0.8.0")
    asked = {"code_path": "other", "trainer_overrides": {"critic.model.fsdp_config.param_offload": True}}
    (finding,) = found(root, **asked)
    assert finding.key == "trainer_overrides.critic.model.fsdp_config.param_offload"
    assert finding.what == "is not read by verl 0.8.0"
    assert "critic.fsdp.param_offload" in finding.todo


def test_a_snapshot_of_no_version(root: Path) -> None:
    path = root / "common" / "code" / "verl" / "verl-0.9.1"
    (path / "verl" / "version" / "version").unlink()
    assert read_verl_version(path) is None
    assert [finding.what for finding in found(root)] == [f"{path} contains verl unknown, which is not supported"]


def test_the_marker_and_the_version(root: Path) -> None:
    path = root / "common" / "code" / "verl" / "verl-0.9.1"
    assert read_marker(path) == "verl-0.9.1"
    assert read_verl_version(path) == "0.9.1"


def test_a_model_without_its_configuration(root: Path) -> None:
    (root / "common" / "models" / "tiny" / "config.json").unlink()
    assert found(root) == [missing(root, "model", f"{root}/common/models/tiny/config.json")]


def test_a_dataset_that_lacks_val(root: Path) -> None:
    (root / "datasets" / "gsm8k" / "val.parquet").unlink()
    assert found(root) == [missing(root, "dataset", f"{root}/datasets/gsm8k/val.parquet")]


def test_a_reward_that_is_not_there(root: Path) -> None:
    assert found(root, reward_fn_path="none.py") == [missing(root, "reward_fn_path", f"{root}/user/code/none.py")]


def test_a_link_inside_the_shared_root(root: Path) -> None:
    (root / "common" / "models" / "linked").symlink_to("tiny")
    assert found(root, model="linked") == []


def test_a_shared_root_that_is_a_link_itself(root: Path) -> None:
    link = root.parent / "link"
    link.symlink_to(root)
    assert found(link) == []


def test_all_problems_are_reported_at_once(root: Path) -> None:
    findings = found(root, code_path="a", model="b", dataset="c", reward_fn_path="d.py")
    assert [finding.where for finding in findings] == ["code_path", "model", "dataset", "dataset", "reward_fn_path"]


# --- Resuming ----------------------------------------------------------------------------------------


def checkpoint(root: Path, step: int, size: int = 4, workload: str = "sft") -> Path:
    """A checkpoint of the job sft-1, complete, and the last that verl has finished."""
    archive = Archive(root / "jobs" / "sft-1")
    if not archive.path.is_dir():
        archive.reserve()
        archive.write_json("config/plan.json", {"workload": workload})
    path = archive.path / "checkpoints" / f"global_step_{step}"
    path.mkdir()
    for rank in range(size):
        for kind in ("model", "optim"):
            zipfile.ZipFile(path / f"{kind}_world_size_{size}_rank_{rank}.pt", "w").close()
    (path.parent / "latest_checkpointed_iteration.txt").write_text(str(step))
    return path


def resumed(root: Path, world_size: int = 4, **changes: Any) -> tuple[list[Finding], Checkpoint | None]:
    asked = {"workload": "sft", "reward_fn_path": None, "resume_from": "sft-1", **changes}
    return resume_findings(parsed(root, **asked), world_size)


def test_a_job_that_resumes_nothing(root: Path) -> None:
    assert resumed(root, resume_from=None) == ([], None)


def test_resuming_from_the_last_checkpoint(root: Path) -> None:
    checkpoint(root, 10)
    path = checkpoint(root, 20)
    assert resumed(root) == ([], Checkpoint(20, path, 4, ""))


def test_resuming_from_the_last_complete_checkpoint(root: Path) -> None:
    path = checkpoint(root, 10)
    (checkpoint(root, 20) / "model_world_size_4_rank_3.pt").unlink()
    assert resumed(root) == ([], Checkpoint(10, path, 4, ""))


def test_resuming_from_an_unknown_job(root: Path) -> None:
    assert resumed(root) == ([about_resume("there is no job sft-1", "status.yml lists the jobs")], None)
    # A submission that failed early has a plan without a workload.
    archive = Archive(root / "jobs" / "early")
    archive.reserve()
    archive.write_json("config/plan.json", {})
    assert resumed(root, resume_from="early")[0][0].what == "there is no job early"
    checkpoint(root, 10)
    findings, found = resumed(root, resume_from="sft-2")
    assert findings == [about_resume("there is no job sft-2", 'did you mean "sft-1"?')]
    assert found is None


def test_resuming_from_another_workload(root: Path) -> None:
    checkpoint(root, 10)
    findings, found = resumed(root, workload="grpo")
    assert findings == [
        about_resume(
            "sft-1 is a job of workload sft, but this job has workload grpo", "resume from a job of the same workload"
        )
    ]
    assert found is None


def test_resuming_without_a_checkpoint(root: Path) -> None:
    path = checkpoint(root, 10)
    (path / "model_world_size_4_rank_0.pt").unlink()
    findings, found = resumed(root)
    what = f"sft-1 has no complete checkpoint: {path} has no model shard of rank 0 of 4"
    assert findings == [about_resume(what, "choose another job")]
    assert found is None
    (path.parent / "latest_checkpointed_iteration.txt").unlink()
    (finding,), found = resumed(root)
    assert finding.what == "sft-1 has no complete checkpoint: it saved none"


def test_resuming_with_another_number_of_gpus(root: Path) -> None:
    path = checkpoint(root, 10, size=2)
    findings, found = resumed(root, world_size=4)
    what = f"{path} was saved by 2 processes, but this job has 4"
    assert findings == [about_resume(what, "set resources to 2 GPUs in total")]
    assert found is None
    # Files of other backends do not tell it.
    for file in path.iterdir():
        file.rename(file.with_suffix(".distcp"))
    assert resumed(root, world_size=4) == ([], Checkpoint(10, path, 0, ""))
