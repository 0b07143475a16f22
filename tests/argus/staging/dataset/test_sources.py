"""Files and generated rows, and which source the options select."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from staging_datasets import asked, lines, refused, rl_row
from staging_tools import manifest_json

from argus.checks.dataset import RL, SFT
from argus.staging.dataset.sources import FileRows
from argus.staging.manifest import Status


def test_files_are_compared_as_long_as_they_exist(raw: Path, root: Path) -> None:
    one, two = lines(raw / "1.jsonl", [rl_row(1)]), lines(raw / "2.jsonl", [rl_row(2)])
    pattern = {"files": {"train": [f"{raw}/*.jsonl"]}, "val_rows": 1}
    asked(root, **pattern)
    assert asked(root, files={"train": [one, two]}, val_rows=1).status == Status.EXISTS
    assert f"was also staged from {two}, which files.train does not have now" in refused(
        root, files={"train": [one]}, val_rows=1
    )
    assert "in another order" in refused(root, files={"train": [two, one]}, val_rows=1)
    assert "was staged with val_rows 1, but the request has val_rows 2" in refused(root, **{**pattern, "val_rows": 2})
    three = lines(raw / "3.jsonl", [rl_row(3)])
    assert FileRows.of({"train": [one, two], "val": [three]}).label == f"{one}, {two} and 1 more"
    assert FileRows.of({"train": [one], "val": [three]}).label == f"{one}, {three}"
    assert f"was staged without {three}, which files.train has now" in refused(root, **pattern)
    Path(three).unlink()
    time = Path(one).stat().st_mtime_ns
    os.utime(one, ns=(time, time + 1))
    assert f"was staged from {one}, which has changed since (another time)" in refused(root, **pattern)
    lines(Path(one), [rl_row(1), rl_row(4)])
    assert f"was staged from {one}, which has changed since (" in refused(root, **pattern)
    Path(one).unlink()
    assert asked(root, **pattern).status == Status.EXISTS
    Path(two).unlink()
    assert asked(root, **pattern).status == Status.EXISTS
    assert f"was staged from {raw}/*.jsonl, but the request has tiny" in refused(root, tiny=True)


@pytest.mark.parametrize(("workload", "rows"), [(RL, {"train": 128, "val": 16}), (SFT, {"train": 128, "val": 32})])
def test_tiny_datasets_are_generated(root: Path, workload: str, rows: dict[str, int]) -> None:
    assert asked(root, workload=workload, tiny=True).status == Status.STAGED
    assert manifest_json(root / "datasets/data")["rows"] == rows
    assert asked(root, workload=workload, tiny=True).status == Status.EXISTS
    other = RL if workload == SFT else SFT
    assert f"is of kind {workload}_dataset, not {other}_dataset" in refused(root, workload=other, tiny=True)
    files = {"train": ["/a.jsonl"], "val": ["/b.jsonl"]}
    assert "was staged from tiny, but the request has /a.jsonl, /b.jsonl" in refused(
        root, workload=workload, files=files
    )


def test_files_of_the_shared_root_have_the_path_of_the_nodes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines(root / "jobs/rows/output/a.jsonl", [rl_row(1), rl_row(2)])
    patterns = {"train": ["jobs/rows/output/*.jsonl"]}
    assert asked(root, files=patterns, val_rows=1, **{"from": "shared_root"}).status == Status.STAGED
    assert asked(root, files={"train": [f"{root}/jobs/rows/output/a.jsonl"]}, val_rows=1).status == Status.EXISTS
    monkeypatch.setenv("ARGUS_VERL_SHARED_ROOT", "/srv/verl")
    said = refused(root, files={"train": "/srv/verl/raw/a.jsonl"}, val_rows=1, **{"from": "shared_root"})
    assert f"is {root} in nodes, and /srv/verl on the head's machine" in said
