"""The system under test, through its public interface: playbooks, modules on the head, jobs and their archives."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from archive_files import lines_of, metrics_of

from argus.archive.archive import Archive

REPO = Path(__file__).resolve().parents[1]
INVENTORY = REPO / "tests" / "inventory"
SHARED_ROOT = REPO / ".cache" / "test" / "shared"
HEAD = "test-ray-head"
NODES = (HEAD, "test-ray-worker-0", "test-ray-worker-1")
JOB_SECONDS = 900


ENVIRONMENT = {**os.environ, "ANSIBLE_CONFIG": str(REPO / "ansible.cfg"), "ANSIBLE_NOCOLOR": "1", "COLUMNS": "250"}


def playbook_command(*names: str, inventories: Sequence[Path] = (INVENTORY,), **variables: Any) -> list[str]:
    """Return the command line that runs playbooks as documented in the README."""
    paths = [str(REPO / "playbooks" / f"{name}.yml") for name in names]
    sources = [argument for inventory in inventories for argument in ("-i", str(inventory))]
    return ["ansible-playbook", *sources, *paths, "-e", json.dumps(variables)]


def playbook(*names: str, check: bool = True, **arguments: Any) -> subprocess.CompletedProcess[str]:
    environment = {**ENVIRONMENT, **arguments.pop("environment", {})}
    further = arguments.pop("arguments", ())
    done = subprocess.run(
        [*playbook_command(*names, **arguments), *further],
        cwd=REPO,
        env=environment,
        text=True,
        capture_output=True,
        check=False,
    )
    if check and done.returncode:
        pytest.fail(f"{' '.join(names)} failed:\n{done.stdout}\n{done.stderr}")
    return done


def said(output: str) -> str:
    """Return the output of Ansible without indentation, and with the wrapped cells of tables joined."""
    rows: list[list[str]] = []
    columns: list[int] = []
    for line in output.splitlines():
        if line.startswith("SEVERITY  "):
            columns = [line.index(name) for name in ("SEVERITY", "WHERE", "WHAT", "WHAT TO DO")]
        if not line.strip() or any(line[start - 2 : start].strip() for start in columns[1:]):
            columns = []
        if not columns:
            rows.append([line])
            continue
        cells = [line[start:end] for start, end in zip(columns, [*columns[1:], None], strict=True)]
        if cells[0].strip():
            rows.append(cells)
        else:
            # A long cell continues below itself.
            rows[-1] = [f"{above} {below}" for above, below in zip(rows[-1], cells, strict=True)]
    return " ".join(" ".join(cell for row in rows for cell in row).split())


def module(name: str, **arguments: Any) -> dict[str, Any]:
    """Run a module of the collection on the head, and return its result."""
    done = subprocess.run(
        ["ansible", "-i", str(INVENTORY), HEAD, "-m", f"argus.verl.{name}", "-a", json.dumps(arguments)],
        cwd=REPO,
        env={**ENVIRONMENT, "ANSIBLE_CALLBACK_RESULT_FORMAT": "json"},
        text=True,
        capture_output=True,
        check=False,
    )
    _, _, text = done.stdout.partition("=> ")
    if done.returncode or not text:
        pytest.fail(f"{name} failed:\n{done.stdout}\n{done.stderr}")
    return dict(json.loads(text))


def on_node(node: str, *command: str) -> str:
    """Return the output of a command inside a node."""
    done = subprocess.run(["docker", "exec", node, *command], text=True, capture_output=True, check=False)
    if done.returncode:
        pytest.fail(f"{command} on {node}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


@dataclass
class Job:
    """A submitted job, and its archive on this machine."""

    submission_id: str
    # The output of Ansible at its submission.
    submitted: str = ""

    @property
    def archive(self) -> Archive:
        return Archive(SHARED_ROOT / "jobs" / self.submission_id)

    def log(self) -> str:
        return self.archive.driver_log.read_text(errors="replace")

    def wait(self, *states: str) -> dict[str, Any]:
        """Wait until the job has ended and its archive is complete; fail if its state is not one of these."""
        deadline = time.monotonic() + JOB_SECONDS
        while "closed_at" not in self.archive.status_json():
            if time.monotonic() > deadline:
                pytest.fail(f"{self.submission_id} did not end within {JOB_SECONDS} s:\n{self.log()[-4000:]}")
            time.sleep(0.5)
        status = self.archive.status_json()
        if status["state"] not in (states or ("SUCCEEDED",)):
            pytest.fail(f"{self.submission_id} ended {status}:\n{self.log()[-4000:]}")
        return status

    def values(self, metric: str) -> list[float]:
        return [entry["data"][metric] for entry in metrics_of(self.archive) if metric in entry["data"]]


Submit = Callable[..., Job]


def until(condition: Callable[[], Any], expectation: str, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while True:
        begin = time.monotonic()
        if condition():
            return
        end = time.monotonic()
        if end > deadline:
            pytest.fail(f"{expectation}: not within {seconds} s")
        # What takes long, such as a client of Ray, leaves the cores to the jobs.
        time.sleep(max(0.5, 3 * (end - begin)))


def events(job: Job) -> list[str]:
    return [event["event"] for event in lines_of(job.archive, "events.jsonl")]


def processes_of(job: Job, node: str) -> list[str]:
    """Those of a job on a node, and of engines. The steward names the job to the process that writes its page."""
    lines = on_node(node, "ps", "-eo", "args").splitlines()
    return [line for line in lines if (job.submission_id in line and " pages " not in line) or "VLLM::" in line]


def forget_losses() -> None:
    """Remove the records of nodes that tests have killed, so that none counts as bad."""
    on_node(HEAD, "sh", "-c", "rm -f ${ARGUS_VERL_REGISTRY:-/var/lib/argus-verl/jobs}/.lost-*")


def in_ray(code: str) -> str:
    """The output of Python code that runs on the head, with Ray's client as `c`."""
    client = "from ray.job_submission import JobSubmissionClient as C; c = C('http://127.0.0.1:8265');"
    return on_node(HEAD, "python3", "-c", f"{client} {code}")


# Without a client of Ray, whose import takes seconds.
RAY_JOBS = """
import json, os, urllib.request
token = open(os.environ["RAY_AUTH_TOKEN_PATH"]).read().strip()
asked = urllib.request.Request("http://127.0.0.1:8265/api/jobs/", headers={"Authorization": f"Bearer {token}"})
jobs = json.load(urllib.request.urlopen(asked))
print(json.dumps({job["submission_id"]: job["status"] for job in jobs if job["submission_id"]}))
"""


def ray_jobs(submission_id: str) -> dict[str, str]:
    listed = json.loads(on_node(HEAD, "python3", "-c", RAY_JOBS))
    return {key: state for key, state in listed.items() if key.partition("~")[0] == submission_id}


@contextmanager
def held(**resources: Any) -> Iterator[str]:
    """Another job, submitted with Ray's own command line, holds resources. Gives the id that Ray chose for it."""
    options = [f"--{name.replace('_', '-')}={json.dumps(value)}" for name, value in resources.items()]
    submit = ("ray", "job", "submit", "--no-wait", "--address=http://127.0.0.1:8265", *options)
    (holder,) = set(re.findall(r"raysubmit_\w+", on_node(HEAD, *submit, "--", "sleep", "infinity")))
    try:
        until(lambda: ray_jobs(holder) == {holder: "RUNNING"}, "the holder runs")
        yield holder
    finally:
        in_ray(f"c.stop_job({holder!r})")
        until(lambda: ray_jobs(holder) == {holder: "STOPPED"}, "the holder is gone")
