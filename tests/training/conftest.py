"""A real cluster of three containers for the training tests, and jobs as a user would submit them."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import Archive

REPO = Path(__file__).resolve().parents[2]
INVENTORY = REPO / "tests" / "inventory"
SHARED_ROOT = REPO / ".cache" / "test" / "shared"
HEAD = "test-ray-head"
JOB_SECONDS = 420


def playbook(*names: str, check: bool = True, **variables: Any) -> subprocess.CompletedProcess[str]:
    """Run playbooks of ours the way the README says."""
    paths = [str(REPO / "playbooks" / f"{name}.yml") for name in names]
    done = subprocess.run(
        ["ansible-playbook", "-i", str(INVENTORY), *paths, "-e", json.dumps(variables)],
        cwd=REPO,
        env={**os.environ, "ANSIBLE_CONFIG": str(REPO / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1"},
        text=True,
        capture_output=True,
        check=False,
    )
    if check and done.returncode:
        pytest.fail(f"{' '.join(names)} failed:\n{done.stdout}\n{done.stderr}")
    return done


def module(name: str, **arguments: Any) -> dict[str, Any]:
    """Run a module of ours on the head, and return what it returns."""
    done = subprocess.run(
        ["ansible", "-i", str(INVENTORY), HEAD, "-m", f"argus.verl.{name}", "-a", json.dumps(arguments)],
        cwd=REPO,
        env={
            **os.environ,
            "ANSIBLE_CONFIG": str(REPO / "ansible.cfg"),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "json",
            "ANSIBLE_DISPLAY_OK_HOSTS": "true",
        },
        text=True,
        capture_output=True,
        check=False,
    )
    head, _, text = done.stdout.partition("=> ")
    if done.returncode or not text:
        pytest.fail(f"{name} failed:\n{done.stdout}\n{done.stderr}")
    return dict(json.loads(text))


def on_head(*command: str) -> str:
    return subprocess.run(["docker", "exec", HEAD, *command], text=True, capture_output=True, check=True).stdout


@dataclass
class Job:
    """A job that was submitted, and its archive as this machine sees it."""

    submission_id: str

    @property
    def archive(self) -> Archive:
        return Archive(SHARED_ROOT / "jobs" / self.submission_id)

    def log(self) -> str:
        return self.archive.driver_log.read_text(errors="replace")

    def wait(self, *states: str) -> dict[str, Any]:
        """Until the job has ended; fails when that is not in one of the states."""
        deadline = time.monotonic() + JOB_SECONDS
        while self.archive.status().get("state") not in ("SUCCEEDED", "FAILED", "STOPPED"):
            if time.monotonic() > deadline:
                pytest.fail(f"{self.submission_id} did not end within {JOB_SECONDS} s:\n{self.log()[-4000:]}")
            time.sleep(0.5)
        status = self.archive.status()
        if status["state"] not in (states or ("SUCCEEDED",)):
            pytest.fail(f"{self.submission_id} ended {status}:\n{self.log()[-4000:]}")
        return status

    def values(self, metric: str) -> list[float]:
        return [entry["data"][metric] for entry in self.archive.metrics() if metric in entry["data"]]


class Cluster:
    def __init__(self, tmp: Path) -> None:
        self.tmp = tmp

    def submit(self, name: str, **changes: Any) -> Job:
        """Submit a JobSpec of inventories/dev, some keys of it changed."""
        spec = yaml.safe_load((REPO / "inventories" / "dev" / "jobspecs" / f"{name}.yaml").read_text())
        overrides = changes.pop("trainer_overrides", {})
        spec.update(changes, trainer_overrides={**spec["trainer_overrides"], **overrides})
        spec["submission_id"] = f"test-{name}-{time.time_ns()}"
        file = self.tmp / f"{spec['submission_id']}.yaml"
        file.write_text(yaml.safe_dump(spec))
        playbook("submit", jobspec=str(file))
        return Job(spec["submission_id"])


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Whatever a run that was cut off has left is removed first."""
    SHARED_ROOT.mkdir(parents=True, exist_ok=True)
    playbook("cluster_down", allow_disruption=True)
    playbook("cluster_up", "stage")
    try:
        yield Cluster(tmp_path_factory.mktemp("jobspecs"))
    finally:
        playbook("cluster_down", allow_disruption=True)
