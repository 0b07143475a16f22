"""What there is under a shared root, finished or not."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from typing import Any

import pytest
from staging_tools import stage

from argus.staging.listing import UNFINISHED, UNKNOWN, list_staged
from argus.staging.lock import Progress, lock_file, locked
from argus.staging.options import Verify
from argus.staging.store import BuildRequest, Built


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """The place of a dataset in a shared root."""
    path = tmp_path / "datasets" / "sums"
    path.parent.mkdir()
    return path


def put(target: Path) -> None:
    def build(directory: Path, progress: Progress) -> Built:
        (directory / "train.parquet").write_bytes(bytes(1000))
        return Built({"source": "somewhere", "rows": {"train": 8}})

    stage(BuildRequest("rl_dataset", target.name, target, build))


def found(target: Path, verify: str = "no") -> list[dict[str, Any]]:
    return [entry.as_dict() for entry in list_staged(target.parents[1], verify)]


def test_staged_targets_are_listed_with_their_problems(target: Path) -> None:
    put(target)
    (target.parent / "by-hand").mkdir()
    by_hand, sums = found(target, Verify.FULL)
    assert (sums["kind"], sums["name"], sums["bytes"], sums["files"]) == ("rl_dataset", "sums", 1000, 1)
    assert (sums["source"], sums["rows"], sums["problems"]) == ("somewhere", {"train": 8}, [])
    assert by_hand["kind"] == UNKNOWN and "was not staged" in by_hand["problems"][0]
    (target / "train.parquet").write_bytes(b"other")
    assert found(target, Verify.FULL)[1]["problems"] == ["train.parquet has 5 bytes, not 1000"]


def test_a_running_build_is_listed_with_its_progress(target: Path) -> None:
    with locked(target) as progress:
        progress.begin("downloading acme/sums", 4 << 20)
        progress.add(1 << 20)
        progress.write()
        building = target.with_name(".sums.staging-0123abcd")
        (building / "below").mkdir(parents=True)
        (building / "below" / "file").write_bytes(bytes(300))
        expected = f"downloading acme/sums on {socket.gethostname()}, 1 MiB of 4 MiB (25 %)"
        # The thread that writes the progress every second may have started before.
        give_up = time.monotonic() + 10
        while not found(target)[0].get("source", "").startswith(expected):
            assert time.monotonic() < give_up
            time.sleep(0.05)
        (busy,) = found(target)
    assert (busy["kind"], busy["name"], busy["path"], busy["problems"]) == (UNFINISHED, "sums", str(target), [])
    assert busy["bytes"] >= 300


def test_leftovers_are_listed_until_the_target_is_staged(target: Path) -> None:
    target.with_name(".sums.staging-0123abcd").mkdir()
    lock_file(target).write_text('{"host": "head-1", "pid": 17, "step": "", "done": 0, "total": 0}')
    # Of others' making.
    (target.parent / ".snapshot").mkdir()
    (left,) = found(target)
    assert left["problems"] == ["was left unfinished by head-1, process 17: .sums.lock, .sums.staging-0123abcd"]
    assert "source" not in left
    put(target)
    assert [each["kind"] for each in found(target)] == ["rl_dataset"]
