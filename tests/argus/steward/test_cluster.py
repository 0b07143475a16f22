"""The steward of a cluster: all of its jobs, one thread each, in a process that may end at any moment."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from archive_files import lines_of
from fake_ray import FakeClock
from program import write_program
from real_processes import until

from argus.archive.archive import Archive
from argus.hooks import worker_secrets
from argus.jobs.registry import RegisteredJob, Registry
from argus.ray.admission import REGISTRY_VARIABLE, steward_runs
from argus.steward import cluster
from argus.steward.cluster import ClusterSteward, look_after

# Where nothing listens: Ray does not answer.
ADDRESS = "http://127.0.0.1:1"


class Cluster:
    """A registry and a shared root."""

    def __init__(self, path: Path) -> None:
        self.root = path / "private"
        (self.root / "jobs").mkdir(parents=True)
        self.registry = Registry(path / "registry")
        self.registry.path.mkdir()

    def job(self, name: str, state: str | None = "QUEUED") -> Archive:
        archive = Archive(self.root / "jobs" / name)
        archive.reserve()
        archive.write_heartbeat("steward.json", time=0)
        archive.write_json("config/plan.json", {"address": ADDRESS, "deadline": 3600})
        if state:
            archive.set_status(state, submitted_at=time.time(), queued_at=time.time())
        self.registry.write(RegisteredJob(name, time.time(), {}, str(self.root), ADDRESS))
        return archive


@pytest.fixture
def here(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


@contextlib.contextmanager
def running(steward: ClusterSteward) -> Iterator[threading.Event]:
    """A steward in a thread of this test; with the event set, its version is not the current one any more."""
    outdated = threading.Event()
    steward.is_current = lambda: not outdated.is_set()
    thread = threading.Thread(target=steward.run)
    thread.start()
    try:
        yield outdated
    finally:
        outdated.set()
        thread.join(30)
        assert not thread.is_alive()


def test_a_job_that_hangs_delays_no_other_job_and_no_new_version(
    here: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "POLL_INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(cluster, "HANDOVER_TIMEOUT_SECONDS", 0.2)
    for name in ("a-hangs", "b", "c"):
        here.job(name)
    free, seen = threading.Event(), []

    def job(_registry: Registry, submission_id: str, _leaving: threading.Event) -> None:
        if submission_id == "a-hangs":
            free.wait(60)
        seen.append(submission_id)

    with running(ClusterSteward(here.registry, lambda: True, job)) as outdated:
        until(lambda: len(seen) == 2)
        outdated.set()
    assert sorted(seen) == ["b", "c"]
    free.set()


def test_a_job_that_has_damaged_its_archive_is_looked_at_again(here: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "RETRY_SECONDS", 0.05)
    archive = here.job("one")
    status = archive.path / "status.json"
    status.rename(archive.path / "sound")
    os.mkfifo(status)
    leaving = threading.Event()
    thread = threading.Thread(target=look_after, args=(here.registry, "one", leaving))
    thread.start()
    time.sleep(0.3)
    assert thread.is_alive() and not archive.has_steward()
    (archive.path / "sound").replace(status)
    until(archive.has_steward)
    leaving.set()
    thread.join(30)
    assert not thread.is_alive()


def test_a_job_with_the_id_of_a_removed_archive_is_looked_after(here: Cluster) -> None:
    seen: list[str] = []
    steward = ClusterSteward(here.registry, lambda: True, lambda _registry, name, _leaving: seen.append(name))
    for times in (1, 2):
        here.registry.write(RegisteredJob("sft-1", time.time(), {}, str(here.root), ADDRESS))
        for _look in range(2):
            steward.start_missing()
            until(lambda: not steward.job_ids())
        assert len(seen) == times
        here.registry.remove("sft-1")
        steward.start_missing()


def test_pages_are_written_now_and_then_and_once_after_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, jobs, written = FakeClock(), {"one", "two"}, []
    clock.then = lambda now: now >= 100 and jobs.discard("one")
    monkeypatch.setattr(cluster, "time", clock)
    monkeypatch.setattr(cluster, "write_pages", lambda names: written.append((clock.now, names)) or clock.sleep(7))
    leaving = SimpleNamespace(wait=lambda seconds: clock.sleep(seconds) or clock.now > 200)
    cluster.update_pages(lambda: jobs, leaving)  # type: ignore[arg-type]
    assert written == [(60, ["one", "two"]), (101, ["one"]), (130, ["two"])]


def test_a_submission_that_was_interrupted_is_closed_and_its_secrets_are_removed(
    here: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(REGISTRY_VARIABLE, str(here.registry.path))
    archive = here.job("one", None)
    worker_secrets.store(archive.path, {"HF_TOKEN": "hf_secret"})
    look_after(here.registry, "one", threading.Event())
    status = archive.read_status()
    assert (status.state, bool(status.closed_at)) == ("FAILED", True)
    assert not worker_secrets.secrets_path(archive.path).exists()


@contextlib.contextmanager
def process(here: Cluster, path: Path) -> Iterator[subprocess.Popen[bytes]]:
    environment = {**os.environ, REGISTRY_VARIABLE: str(here.registry.path)}
    with subprocess.Popen([sys.executable, "-I", str(path), "steward"], env=environment) as steward:
        try:
            yield steward
        finally:
            steward.kill()


def test_it_can_be_killed_and_a_new_version_takes_over(here: Cluster, tmp_path: Path) -> None:
    """As the head's start command runs it, again whenever it ends."""
    for version in ("argus-111111111111", "argus-222222222222"):
        write_program(tmp_path / version)
    current = tmp_path / "current"
    current.symlink_to("argus-111111111111")
    one = here.job("one")
    with process(here, current) as steward:
        until(lambda: steward_runs(here.registry.path) and one.has_steward())
        with process(here, current) as second:
            # It waits for the end of the first.
            time.sleep(1)
            assert second.poll() is None
            steward.send_signal(signal.SIGKILL)
            steward.wait(30)
            two = here.job("two")
            until(two.has_steward)
            two.ask_to_stop()
            until(lambda: two.read_status().closed_at)
            (tmp_path / "new").symlink_to("argus-222222222222")
            (tmp_path / "new").replace(current)
            assert second.wait(30) == 0
    assert not steward_runs(here.registry.path)
    events = [line["event"] for line in lines_of(one, "events.jsonl")]
    assert events.count("KEPT") >= 2 and one.read_status().state == "QUEUED"
