"""No archive that a job can leave stops a verb, delays it for seconds, or hides another job."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.plugin_utils.reporting import report_lines
from hostile_archives import GOOD, HOSTILE, SECRET, make
from staging_store import as_nobody

from argus.archive import checkpoints
from argus.archive.archive import Archive
from argus.evidence import evidence
from argus.io.reading import MAX_DIRECTORY_ENTRIES, UnreadableError
from argus.jobs.describe import describe
from argus.jobs.info import JobInfo
from argus.jobs.job_list_report import jobs_report
from argus.jobs.listing import UnknownJobError, find_job, job_status, jobs_status, latest_jobs
from argus.jobs.report import Report, job_report
from argus.launcher.log_scan import total_steps
from argus.queue import attempts
from argus.verbs.fetch import FetchRequest
from argus.verbs.fetch import fetch as fetch_verb

SECONDS = 5
NOBODY = 65534
# The part of the machine's file that no verb may show.
HIDDEN = SECRET.read_text().splitlines()[0] if os.access(SECRET, os.R_OK) else "root:"
NO_ARCHIVES = ("a-link-to-another", "a-link-to-the-machine", "a-file", "a-fifo")


class TakesTooLongError(BaseException):
    """Not an error that a verb could handle."""


@contextmanager
def in_time(subject: str) -> Iterator[None]:
    """Fail a block that computes for longer, or hangs; other processes of this machine do not count."""

    def late(_signum: int, _frame: object) -> None:
        raise TakesTooLongError(f"{subject} takes longer than {SECONDS} s")

    before = {number: signal.signal(number, late) for number in (signal.SIGALRM, signal.SIGPROF)}
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(10 * SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.setitimer(signal.ITIMER_PROF, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.fixture(params=HOSTILE)
def bad(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Archive]:
    """A bad archive beside a good one."""
    (tmp_path / "jobs").mkdir()
    name = f"bad-{request.param}"
    make(tmp_path / "jobs", request.param)
    yield Archive(tmp_path / "jobs" / name)
    # pytest could not remove a path that is longer than the system allows.
    if request.param in ("nested-deeply", "closed-to-all"):
        (tmp_path / "jobs" / name).chmod(0o700)
        subprocess.run(["rm", "-rf", tmp_path / "jobs"], check=True)


def is_good(job: JobInfo) -> bool:
    done = job.progress
    shown = (job.submission_id, job.state, job.workload, done.step, done.total_steps, done.last, job.unreadable)
    return shown == (GOOD, "RETRYING", "grpo", 2, 12, 0.25, ())


def can_be_shown(value: object) -> None:
    """What is returned goes through JSON and to a terminal."""
    json.dumps(value, ensure_ascii=False).encode()


def is_drawn(report: Report) -> None:
    can_be_shown(report.to_json())
    with in_time("drawing"):
        report_lines(report.title, report.header, report.rows, [], report.text, 80, 80)


def test_status_and_stewards_go_on(bad: Archive) -> None:
    with in_time("status"):
        listed = latest_jobs(bad.jobs, None, 20)
    rows = {job.submission_id: job for job in listed.jobs}
    assert is_good(rows.pop(GOOD))
    assert list(rows) == [name for name in [bad.submission_id] if not bad.submission_id.endswith(NO_ARCHIVES)]
    can_be_shown(listed.to_json())
    is_drawn(jobs_report(listed, time.time(), cluster="mvp", status_command="x", submit_command="y"))
    if not rows:
        with pytest.raises(UnknownJobError):
            find_job(bad.jobs, bad.submission_id)
        return
    archive = find_job(bad.jobs, bad.submission_id)
    with in_time("describe"):
        job = describe(archive, None, 100)
    assert rows[bad.submission_id].state != "UNREADABLE" or len(rows[bad.submission_id].reason) < 1000
    can_be_shown(job.to_json())
    is_drawn(job_report(job, time.time(), []))
    assert sum(map(len, job.log)) <= 2 << 20
    # What stewards ask.
    further = (lambda: attempts.stop_cause(bad), lambda: evidence.prune(bad))
    for ask in (bad.plan, bad.read_status, bad.checkpoints, *further):
        with in_time("a typed file"), contextlib.suppress(OSError, UnreadableError):
            ask()
    with in_time("the last step"):
        assert bad.last_step() >= 0 and attempts.steps_done(bad, 1) >= 0 and total_steps(bad) in (None, 12)
    with in_time("checkpoints"), contextlib.suppress(UnreadableError):
        list(checkpoints.saved_checkpoints(bad.path / "checkpoints", "grpo"))


# --- As root, against archives of another user -----------------------------------------------------------------------


@pytest.fixture
def shared_root(tmp_path: Path) -> Path:
    """A shared root of the nodes' user with all hostile archives, where root runs the modules."""
    for parent in (tmp_path, *tmp_path.parents):
        parent.chmod(parent.stat().st_mode | 0o055)
    root = tmp_path / "shared"
    (root / "jobs").mkdir(parents=True)
    kinds = [kind for kind in HOSTILE if kind.startswith(("status.json", "config-", "logs-")) or kind in NO_ARCHIVES]
    make(root / "jobs", *kinds)
    for directory, directories, files in os.walk(root):
        for name in (".", *directories, *files):
            os.chown(Path(directory) / name, NOBODY, NOBODY, follow_symlinks=False)
    return root


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_verbs_as_the_user_of_the_nodes(shared_root: Path, tmp_path: Path) -> None:
    listed: Any = as_nobody(lambda: jobs_status(shared_root, None, 1000, {}))
    rows = {job["submission_id"]: job for job in listed["jobs"]}
    assert len(rows) > 40 and is_good(JobInfo.from_json(rows[GOOD]))
    assert not {f"bad-{kind}" for kind in NO_ARCHIVES} & set(rows)
    assert HIDDEN not in json.dumps(listed)
    # The mode of a file is an obstacle for the nodes' user, as it is not for root.
    assert rows["bad-status.json-unreadable"]["reason"].endswith("cannot be opened (Permission denied)")
    for name in ("bad-status.json-link", "bad-logs-looped-directory", "bad-status.json-fifo", GOOD):
        one: Any = as_nobody(partial(job_status, shared_root, None, name, 50, None, 0))
        assert one["job"]["submission_id"] == name and HIDDEN not in json.dumps(one)
        request = FetchRequest(shared_root=str(shared_root), submission_id=name)
        with (tmp_path / "bundle").open("wb") as bundle:
            as_nobody(partial(fetch_verb, request, bundle))
        assert HIDDEN.encode() not in gzip.decompress((tmp_path / "bundle").read_bytes())


def test_a_directory_with_thousands_of_entries(tmp_path: Path) -> None:
    (jobs := tmp_path / "jobs").mkdir()
    make(jobs, "a-file")
    for number in range(3000):
        (jobs / f"sft-{number}").mkdir()
        if number % 2:
            (jobs / f"sft-{number}" / "steward.json").symlink_to(SECRET)
    # More than a listing may have, with names of jobs and without.
    for number in range(MAX_DIRECTORY_ENTRIES + 1):
        os.mknod(jobs / (f"ppo-{number}" if number % 2 else f"X{number}"), stat.S_IFREG)
    with in_time("status"):
        listed = latest_jobs(jobs, None, 20)
    assert (len(listed.jobs), listed.total) == (20, 3001)
    with in_time("an unknown job"), pytest.raises(UnknownJobError):
        find_job(jobs, "none")
