"""The jobs of a cluster that is removed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from fake_ray import FakeClock, FakeRay

from argus.archive.archive import Archive
from argus.hooks import worker_secrets
from argus.jobs.registry import RegisteredJob, Registry
from argus.jobs.removal import REMOVAL_REASON, close_jobs, end_jobs, removal_effect
from argus.jobs.services import Effect
from argus.queue import attempts


class Cluster:
    """The registry and the archives of a cluster."""

    def __init__(self, path: Path) -> None:
        self.jobs = path / "private" / "jobs"
        self.registry = Registry(path / "registry")
        self.registry.path.mkdir()
        self.clock = FakeClock()
        self.ray = FakeRay()

    def job(self, name: str, state: str = "RUNNING") -> Archive:
        made = Archive(self.jobs / name)
        made.reserve()
        made.write_json("config/plan.json", {"retries": 1})
        made.write_heartbeat("steward.json", time=time.time())
        made.set_status(state)
        worker_secrets.store(made.path, {"KEY": "value"})
        self.registry.write(RegisteredJob(name, 1.0, {}, str(made.path.parents[1])))
        return made

    def end(self, check_mode: bool = False) -> Effect:
        services = self.ray.services(self.registry, self.clock)
        return end_jobs(self.jobs, self.registry.ids(), services, check_mode)

    def close(self, check_mode: bool = False) -> Effect:
        return close_jobs(self.jobs, self.registry.ids(), check_mode)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_stewards_are_asked_and_waited_for(cluster: Cluster) -> None:
    one, closed = cluster.job("one"), cluster.job("closed", "SUCCEEDED")
    closed.close()
    cluster.clock.then = lambda now: now >= 5 and not one.read_status().closed_at and one.close()
    assert cluster.end() == removal_effect(["one"])
    assert one.stop_requested() and not closed.stop_requested()
    verdict = attempts.stop_cause(one)
    assert verdict
    assert (verdict.kind, verdict.reason) == ("stopped", REMOVAL_REASON)
    assert not attempts.stop_cause(closed)
    assert 5 <= cluster.clock.now < 6


def test_check_mode_changes_nothing(cluster: Cluster) -> None:
    one, closed = cluster.job("one"), cluster.job("closed", "SUCCEEDED")
    closed.close()
    before = one.path.joinpath("status.json").read_text()
    assert cluster.end(check_mode=True) == cluster.close(check_mode=True) == removal_effect(["one"])
    assert one.path.joinpath("status.json").read_text() == before
    assert not one.stop_requested()
    assert worker_secrets.load(one.path) == {"KEY": "value"}


@pytest.mark.parametrize("state", ["QUEUED", "RUNNING"])
def test_archives_are_closed_without_any_node(cluster: Cluster, state: str) -> None:
    one = cluster.job("one", state)
    assert cluster.close() == removal_effect(["one"])
    status = one.read_status()
    assert (status.state, status.reason) == ("STOPPED", f"{REMOVAL_REASON}, by cluster_down.yml")
    assert status.closed_at
    assert not worker_secrets.secrets_path(one.path).exists()
    assert not (one.path / "steward.json").exists()
    # Once.
    assert cluster.close() == removal_effect([])


def test_what_cannot_be_closed_is_named_and_hides_no_other(cluster: Cluster) -> None:
    bad, one = cluster.job("bad"), cluster.job("one")
    (bad.path / "status.json").unlink()
    (bad.path / "status.json").mkdir()
    (one.path / "status.json").write_text("no JSON")
    done = cluster.close()
    assert done.result == {"closed": ["one"]}
    (finding,) = done.findings
    assert (finding.where, finding.severity) == ("bad", "warning")
    assert not worker_secrets.secrets_path(bad.path).exists()
    assert one.read_status().state == "STOPPED" and "its status was lost" in one.read_status().reason


def test_the_secrets_of_a_job_without_an_archive_are_removed_and_other_clusters_left_alone(cluster: Cluster) -> None:
    one, other = cluster.job("one"), cluster.job("other")
    one.path.rename(cluster.jobs.parent / "away")
    cluster.registry.remove("other")
    assert cluster.close() == removal_effect([])
    assert not worker_secrets.secrets_path(one.path).exists()
    assert other.read_status().state == "RUNNING" and worker_secrets.load(other.path)
