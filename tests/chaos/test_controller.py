"""The controller is killed at CHAOS_POINTS moments of a playbook's run; the same command then does what was wanted."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from faults import all_alive, left_by
from system import ENVIRONMENT, NODES, REPO, Job, Submit, events, playbook, playbook_command, ray_jobs, until

POINTS = int(os.environ.get("CHAOS_POINTS", "2"))
SEED = int(os.environ.get("CHAOS_SEED", str(time.time_ns() % 10_000)))
ENDLESS = {"trainer.total_epochs": 100_000, "trainer.save_freq": -1, "trainer.test_freq": -1}
TRAINS: dict[str, Any] = {"resources": {"nnodes": 1, "gpus_per_node": 1}, "trainer_overrides": ENDLESS}


def killed(name: str, seconds: float, **variables: Any) -> None:
    """Run a playbook, and kill its controller after so many seconds."""
    command = playbook_command(name, **variables)
    run = subprocess.Popen(
        command, cwd=REPO, env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    time.sleep(seconds)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()


@pytest.fixture(scope="module")
def moments() -> Callable[[str, Callable[..., object]], Iterator[float]]:
    """Run something once, and give moments of a run of it, one in each part of its time."""
    print(f"CHAOS_SEED={SEED}")

    def moments(name: str, run: Callable[[], object]) -> Iterator[float]:
        chance = random.Random(f"{SEED} {name}")  # noqa: S311
        began = time.monotonic()
        run()
        seconds = time.monotonic() - began
        for point in range(POINTS):
            moment = seconds * (point + chance.random()) / POINTS
            print(f"{name}: killed after {moment:.1f} of {seconds:.1f} s", flush=True)
            yield moment

    return moments


def test_jobs(submit: Submit, tmp_path: Path, moments: Callable[..., Iterator[float]]) -> None:
    """A submission and a stop, beside a job that neither may touch."""
    beside = submit("sft", **TRAINS)
    spec = yaml.safe_load((REPO / "inventories" / "dev" / "jobspecs" / "sft.yaml").read_text()) | {
        "resources": TRAINS["resources"]
    }
    spec["trainer_overrides"] |= ENDLESS

    def jobspec() -> Path:
        file = tmp_path / f"test-killed-{time.time_ns()}.yaml"
        file.write_text(yaml.safe_dump(spec | {"submission_id": file.stem}))
        return file

    ids = [(first := jobspec()).stem]
    for moment in moments("submit", lambda: playbook("submit", jobspec=str(first))):
        playbook("stop", submission_id=ids[-1])
        file = jobspec()
        killed("submit", moment, jobspec=str(file))
        playbook("submit", jobspec=str(file))
        ids.append(file.stem)
        assert list(ray_jobs(file.stem)) == [file.stem]
        assert events(Job(file.stem)).count("SUBMITTED") == 1
    for moment in moments("stop", lambda: playbook("stop", submission_id=ids[-1])):
        job = submit("sft", **TRAINS)
        killed("stop", moment, submission_id=job.submission_id)
        playbook("stop", submission_id=job.submission_id)
        ids.append(job.submission_id)
    for name in ids:
        assert [attempt["kind"] for attempt in Job(name).wait("STOPPED")["attempts"]] == ["stopped"]
    assert beside.archive.read_status().state == "RUNNING"
    playbook("stop", submission_id=beside.submission_id)
    assert len(beside.wait("STOPPED")["attempts"]) == 1
    assert left_by(beside) == []


@pytest.mark.usefixtures("submit")
def test_clusters(moments: Callable[..., Iterator[float]]) -> None:
    def down() -> None:
        playbook("cluster_down", allow_disruption=True)

    for moment in moments("cluster_down", down):
        playbook("cluster_up")
        killed("cluster_down", moment, allow_disruption=True)
        down()
        names = subprocess.run(["docker", "ps", "-a", "--format", "{{.Names}}"], text=True, capture_output=True)
        assert not set(NODES) & set(names.stdout.split())
    for moment in moments("cluster_up", lambda: playbook("cluster_up")):
        down()
        killed("cluster_up", moment)
        assert "3 of 3 nodes as expected" in playbook("cluster_up").stdout
        until(all_alive, "all nodes are alive")
        assert "changed=0" in playbook("cluster_up").stdout
