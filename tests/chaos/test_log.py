"""A job that writes more than a gigabyte into its log."""

from __future__ import annotations

from faults import left_by, sft
from system import Submit, playbook

from argus.launcher.driver_log import MAX_PARTS, PART_BYTES

ROWS = 3 * 128


def test_its_ends_stay(submit: Submit) -> None:
    job = sft(submit, noise=(MAX_PARTS + 4) * PART_BYTES // ROWS // 1021)
    job.wait()
    parts = list((job.archive.path / "logs").glob("driver.log*"))
    size = sum(part.stat().st_size for part in parts)
    assert (MAX_PARTS - 1) * PART_BYTES < size < (MAX_PARTS + 1) * PART_BYTES
    assert "MVP_PRECHECK_VERL_FILE" in min(parts, key=lambda part: part.stat().st_mtime).read_text()[:PART_BYTES]
    assert "noise noise" in playbook("logs", submission_id=job.submission_id).stdout
    assert left_by(job) == []
