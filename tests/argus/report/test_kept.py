"""The page in an archive."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from argus.archive.archive import Archive
from argus.jobs.registry import RegisteredJob, Registry
from argus.ray.admission import REGISTRY_VARIABLE
from argus.report.page import write_page

from .conftest import FAILED, GRPO, RETRIED


def test_a_page_is_made_again_when_the_archive_has_something_new(jobs: Callable[[str], Archive]) -> None:
    archive = jobs(GRPO)
    for event in ("BEFORE", "JUST_NOW"):
        archive.append("events.jsonl", f'{{"time": "2026-11-22T00:00:00Z", "event": "{event}"}}\n')
        assert write_page(archive) and not write_page(archive)
        assert event in (archive.path / "report.html").read_text()


def test_a_hostile_job_keeps_no_other_one_from_its_page(
    jobs: Callable[[str], Archive], hostile: Archive, tmp_path: Path
) -> None:
    registry = Registry(tmp_path / "registry")
    registry.path.mkdir()
    hostile.path.joinpath("report.html").mkdir()
    os.utime(hostile.path / "report.html", (0, 0))
    archives = [hostile, jobs(RETRIED)]
    for archive in archives:
        registry.write(RegisteredJob(archive.submission_id, time.time(), {}, str(tmp_path)))
    command = [sys.executable, "-m", "argus", "pages", FAILED, "no-such-job", RETRIED]
    environment = {**os.environ, REGISTRY_VARIABLE: str(registry.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith(f"{FAILED}: its page cannot be written: ")
    assert (archives[1].path / "report.html").stat().st_mode & 0o777 == 0o640
