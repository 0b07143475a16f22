from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from gate_job import CODE, checkpoint, parsed, snapshot

from argus.archive.archive import Archive
from argus.archive.checkpoints import Checkpoint
from argus.common.findings import Finding
from argus.gate.head import file_findings, read_marker, resume_findings


def findings_of(root: Path, **changes: Any) -> list[Finding]:
    return file_findings(parsed(root, **changes))


def keys(root: Path, **changes: Any) -> list[str]:
    return [finding.key for finding in findings_of(root, **changes)]


# --- Files ---------------------------------------------------------------------------------------------


def test_a_job_whose_files_exist(root: Path) -> None:
    assert findings_of(root) == []
    assert findings_of(root, workload="sft", reward_fn_path=None) == []
    absolute = {"code_path": CODE, "model": "common/models/tiny", "dataset": "datasets/gsm8k"}
    assert findings_of(root, **{key: f"{root}/{path}" for key, path in absolute.items()}) == []


@pytest.mark.parametrize(
    ("key", "name", "meant"),
    [("model", "tinny", "tiny"), ("dataset", "gsm8", "gsm8k"), ("reward_fn_path", "R.py", "r.py")],
)
def test_a_misspelt_input_is_recognised(root: Path, key: str, name: str, meant: str) -> None:
    findings = findings_of(root, **{key: name})
    assert {finding.remedy for finding in findings if finding.key == key} == {f'did you mean "{meant}"?'}


def test_another_shared_root_is_the_only_finding(tmp_path: Path) -> None:
    assert keys(tmp_path) == ["shared_root"]


@pytest.mark.parametrize(
    ("key", "file"),
    [
        ("dataset", "datasets/gsm8k/val.parquet"),
        ("model", "common/models/tiny/config.json"),
        ("reward_fn_path", "user/code/r.py"),
        ("code_path", f"{CODE}/verl/version/version"),
    ],
)
def test_a_file_that_is_missing(root: Path, key: str, file: str) -> None:
    (root / file).unlink()
    (finding,) = findings_of(root)
    assert finding.key == key and str(root) in finding.problem
    # It is not misspelt.
    assert "did you mean" not in finding.remedy


def test_a_missing_snapshot_lists_those_there(root: Path) -> None:
    home = root / "common" / "code" / "verl"
    snapshot(home / "verl-0.9.0", "0.9.0")
    snapshot(home / ".verl-0.9.2.staging-12345678", "0.9.2")
    (home / "README").touch()
    (finding,) = findings_of(root, code_path="verl-0.9.2")
    assert finding.key == "code_path" and finding.remedy.endswith("verl-0.9.0, verl-0.9.1")
    assert keys(root, code_path=f"{root}/elsewhere/verl") == ["code_path"]


@pytest.mark.parametrize(
    "marker",
    [
        *(None, "", "MARKER = = 1", "OTHER = 1", "raise ValueError(1)", 'MARKER = "a" + "b"', 'if 1: MARKER = "a"'),
        *('MARKER = "a/../b"', 'MARKER = "a\\x1b[2J"', "(" * 4000, "\0", 'MARKER = "a"' + " " * 5000),
    ],
)
def test_a_snapshot_without_a_marker(root: Path, marker: str | None) -> None:
    path = root / "common" / "code" / "verl" / "plain"
    snapshot(path, marker=marker or "")
    if marker is None:
        (path / "mvp_marker.py").unlink()
    assert keys(root, code_path="plain") == ["code_path"]


def test_no_code_of_a_snapshot_runs_on_the_head(root: Path) -> None:
    path = root / CODE
    proof = root / "ran"
    (path / "mvp_marker.py").write_text(f'open("{proof}", "w")\nMARKER = "verl-0.9.1"\n')
    (path / "verl" / "__init__.py").write_text(f'open("{proof}", "w")\n')
    (path / "sitecustomize.py").write_text(f'open("{proof}", "w")\n')
    assert findings_of(root) == []
    assert read_marker(path) == "verl-0.9.1"
    assert not proof.exists()


@pytest.mark.parametrize("name", ["mvp_marker.py", "verl/version/version"])
@pytest.mark.parametrize("kind", ["dangling", "fifo", "large", "device"])
def test_files_of_a_snapshot_that_are_something_else(root: Path, name: str, kind: str) -> None:
    file = root / CODE / name
    original = root / "original"
    file.rename(original)
    if kind == "large":
        file.write_bytes(original.read_bytes() + b"#" * (64 << 20))
    elif kind == "fifo":
        os.mkfifo(file)
    else:
        file.symlink_to({"dangling": root / "nothing", "device": Path("/dev/zero")}[kind])
    assert keys(root) == ["code_path"]


# --- Resuming ----------------------------------------------------------------------------------------


def resumed(root: Path, world_size: int = 4, **changes: Any) -> tuple[list[Finding], Checkpoint | None]:
    jobspec = {"workload": "sft", "reward_fn_path": None, "resume_from": "sft-1", **changes}
    return resume_findings(parsed(root, **jobspec), world_size)


def test_resuming_from_the_last_complete_checkpoint(root: Path) -> None:
    assert resumed(root, resume_from=None) == ([], None)
    path, later = checkpoint(root), checkpoint(root, step=20)
    assert resumed(root) == ([], Checkpoint(20, later, 4, ""))
    (later / "model_world_size_4_rank_3.pt").unlink()
    assert resumed(root) == ([], Checkpoint(10, path, 4, ""))


def refused(root: Path, **changes: Any) -> Finding:
    (finding,), checkpoint = resumed(root, **changes)
    assert (finding.key, checkpoint) == ("resume_from", None)
    return finding


def test_resuming_from_an_unknown_job(root: Path) -> None:
    refused(root)
    # A submission that failed early has a plan without a workload.
    archive = Archive(root / "jobs" / "early")
    archive.reserve()
    archive.write_json("config/plan.json", {})
    refused(root, resume_from="early")
    checkpoint(root)
    assert refused(root, resume_from="sft-2").remedy == 'did you mean "sft-1"?'
    # The checkpoint is of another workload.
    refused(root, workload="grpo")


def test_resuming_without_a_checkpoint(root: Path) -> None:
    path = checkpoint(root)
    (path / "model_world_size_4_rank_0.pt").unlink()
    assert "rank 0 of 4" in refused(root).problem
    (path.parent / "latest_checkpointed_iteration.txt").unlink()
    refused(root)


def test_resuming_with_another_number_of_gpus(root: Path) -> None:
    path = checkpoint(root, size=2)
    assert "2 GPUs" in refused(root, world_size=4).remedy
    # Files of other backends do not tell it.
    for file in path.iterdir():
        file.rename(file.with_suffix(".distcp"))
    assert resumed(root, world_size=4) == ([], Checkpoint(10, path, 0, ""))
