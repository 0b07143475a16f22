"""A JobSpec and the shared root that it names, for the tests of the gate."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from argus.archive.archive import Archive
from argus.jobspec.parse import parse_jobspec
from argus.jobspec.spec import JobSpec

CODE = "common/code/verl/verl-0.9.1"
REWARD = "def digit_share(data_source, solution_str, ground_truth, extra_info=None):\n    return 0.0\n"


def snapshot(path: Path, version: str = "0.9.1", marker: str | None = None) -> None:
    (path / "verl" / "version").mkdir(parents=True)
    (path / "verl" / "version" / "version").write_text(f"{version}\n")
    (path / "mvp_marker.py").write_text(marker if marker is not None else f'MARKER = "{path.name}"\n')


def shared_root(shared: Path) -> Path:
    """A shared root with everything that the JobSpec below names."""
    (shared / "jobs").mkdir(parents=True)
    snapshot(shared / CODE)
    (shared / "common" / "models" / "tiny").mkdir(parents=True)
    (shared / "common" / "models" / "tiny" / "config.json").write_text("{}")
    (shared / "datasets" / "gsm8k").mkdir(parents=True)
    for split in ("train", "val"):
        (shared / "datasets" / "gsm8k" / f"{split}.parquet").write_text(split)
    (shared / "user" / "code").mkdir(parents=True)
    (shared / "user" / "code" / "r.py").write_text(REWARD)
    return shared


def parsed(root: Path, **changes: Any) -> JobSpec:
    jobspec = {
        "workload": "grpo",
        "code_path": "verl-0.9.1",
        "model": "tiny",
        "dataset": "gsm8k",
        "reward_fn_path": "r.py:digit_share",
        "shared_root": str(root),
        **changes,
    }
    findings, spec = parse_jobspec(jobspec)
    assert findings == []
    assert spec
    return spec


def checkpoint(root: Path, job: str = "sft-1", step: int = 10, size: int = 4, part: str = "") -> Path:
    """A checkpoint of a job, named like its workload: complete, and the last that verl has finished."""
    archive = Archive(root / "jobs" / job)
    if not archive.path.is_dir():
        archive.reserve()
        archive.write_json("config/plan.json", {"workload": job.partition("-")[0]})
    path = archive.path / "checkpoints" / f"global_step_{step}"
    (path / part).mkdir(parents=True)
    for rank in range(size):
        for kind in ("model", "optim"):
            zipfile.ZipFile(path / part / f"{kind}_world_size_{size}_rank_{rank}.pt", "w").close()
    (path.parent / "latest_checkpointed_iteration.txt").write_text(str(step))
    return path
