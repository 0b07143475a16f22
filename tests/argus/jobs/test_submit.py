from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_ray import FakeClock, FakeRay

from argus.archive.archive import Archive
from argus.checks.request import Facts
from argus.common.findings import WARNING, Finding
from argus.gate.gate import GateResult
from argus.hooks import worker_secrets
from argus.jobs import submit as submit_module
from argus.jobs.registry import RegisteredJob, Registry
from argus.jobs.request import JobRequest
from argus.jobs.services import Effect, OperationError, RefusedError, Services
from argus.jobs.submit import admit_dependent, submit
from argus.jobspec.capacity import Cluster
from argus.jobspec.plan import plan_job
from argus.jobspec.spec import JobSpec
from argus.jobspec.verl_releases import Profile
from argus.queue.demand import Demand
from argus.queue.queue import Queue, WaitingJob
from argus.queue.room import Room
from argus.ray.admission import BusyError, admission_lock, steward_lock, steward_runs
from argus.ray.records import WorkerCapacity

CLUSTER = Cluster("cpu", 2, 4, 48)
NO_CAPACITY = "2 workers with 4 GPUs are asked for, there is 1"


def assert_nothing_changed(head: Head) -> None:
    assert head.ray.changes == list((head.root / "jobs").iterdir()) == []


class FakeGate:
    """Admits every job, with the findings and details that a test sets."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        workers = (WorkerCapacity("worker-0", "w0", 4, 48, 4, 48), WorkerCapacity("worker-1", "w1", 4, 48, 4, 48))
        answers = {"resolved": "trainer: {}\n", "facts": Facts(train_rows=64)}
        self.details: dict[str, Any] = {"room": Room(workers), **answers}
        self.examined: list[str] = []

    def examine(self, spec: JobSpec, submission_id: str, _head: Any) -> GateResult:
        self.examined.append(submission_id)
        job = plan_job(spec, CLUSTER, "verl-0.9.1", submission_id, Profile("0.9.1", (0, 9, 1)))
        return GateResult(findings=tuple(self.findings), job=job, **self.details)


class Head:
    """Everything that `submit` works with, on a shared root in `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.ray, self.gate, self.clock = FakeRay(), FakeGate(), FakeClock()
        (root / "jobs").mkdir(parents=True)
        self.registry = Registry(root.parent / "registry")
        self.registry.path.mkdir()
        # The lock of the steward, until it is closed.
        self.steward = contextlib.ExitStack()

    def jobspec(self, **changes: Any) -> dict[str, Any]:
        names = {"code_path": "verl-0.9.1", "model": "tiny", "dataset": "gsm8k", "shared_root": str(self.root)}
        return {"submission_id": "grpo-1", "workload": "grpo", **names, **changes}

    @property
    def services(self) -> Services:
        return self.ray.services(self.registry, self.clock)

    def submit(self, spec: dict[str, Any], **request: Any) -> Effect:
        return submit(
            JobRequest(**{"jobspec": spec, "defaults": {"shared_root": str(self.root)}, **request}),
            self.services,
            self.gate.examine,
        )

    @property
    def archive(self) -> Archive:
        return Archive(self.root / "jobs" / "grpo-1")


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    head = Head(tmp_path / "private")
    with head.steward:
        head.steward.enter_context(steward_lock(head.registry.path))
        yield head


def test_a_job_is_submitted(head: Head) -> None:
    head.gate.findings = [Finding("space", "is scarce", "free some", WARNING)]
    head.gate.details["checkpoint"] = "/private/jobs/grpo-0/checkpoints/global_step_10"
    changes = {"resume_from": "grpo-0", "trainer_overrides": ["trainer.save_freq=5", "trainer.logger=[console,wandb]"]}
    spec = head.jobspec(**changes)
    submitted = head.submit(spec, resubmitted_from="grpo-00")
    assert (submitted.changed, submitted.findings) == (True, tuple(head.gate.findings))
    overrides = list(head.archive.plan().overrides)
    assert "trainer.save_freq=5" in overrides
    assert submitted.result == {
        **{"submission_id": "grpo-1", "archive": str(head.archive.path), "state": "SUBMITTED"},
        **{"overrides": overrides, "facts": {"train_rows": 64}, "files": {}},
        "diff": {"before": "", "after": "".join(f"{override}\n" for override in overrides)},
    }
    assert head.ray.changes == [("submit_job", "grpo-1")]
    assert {"argus.json", "runtime_env.json", "submit_cmd.txt", "train_cmd.txt"} <= {
        path.name for path in (head.archive.path / "config").iterdir()
    }
    assert head.archive.read_mapping("config/job_spec.json") == spec
    assert (head.archive.path / "config" / "resolved.yaml").read_text() == "trainer: {}\n"
    # Without this directory, W&B would write into a directory of the container.
    assert (head.archive.path / "logs" / "wandb").is_dir()
    assert head.archive.read_status().lineage == {
        "resumed_from": "grpo-0",
        "checkpoint": "/private/jobs/grpo-0/checkpoints/global_step_10",
        "resubmitted_from": "grpo-00",
    }


def test_no_job_passes_one_that_waits_before_it(head: Head) -> None:
    """It has yet to be started by the steward, which looks every two seconds."""
    queue = Queue(head.registry.path)
    queue.put(WaitingJob("first", Demand(2, 4, 1), submitted_at=1.0, patience=60.0))
    spec = head.jobspec(wait_for_resources="2h")
    assert head.submit(spec).result["state"] == "QUEUED"
    assert head.archive.read_status().reason.endswith("once first has started")
    assert head.submit({**spec, "submission_id": "urgent", "priority": 1}).result["state"] == "SUBMITTED"


@pytest.fixture
def earlier(head: Head) -> Archive:
    """The archive of a job that trains."""
    head.submit(head.jobspec(submission_id="sft-1", workload="sft"))
    return Archive(head.root / "jobs" / "sft-1")


def test_a_job_waits_for_another_one(head: Head, earlier: Archive) -> None:
    missing = Finding("model", "does not exist", "stage it", key="model")
    head.gate.findings = [missing]
    spec = head.jobspec(depends_on="sft-1", secrets=["HF_TOKEN"])
    submitted = head.submit(spec, secrets={"HF_TOKEN": "hf_secret"}).result
    assert (submitted["state"], head.archive.plan().depends_on) == ("QUEUED", "sft-1")
    assert head.ray.changes == [("submit_job", "sft-1")]
    assert head.submit(spec, secrets={"HF_TOKEN": "hf_secret"}).changed is False
    earlier.set_status("SUCCEEDED")
    # It is checked again before its turn.
    assert admit_dependent("grpo-1", head.services, head.gate.examine) == "FAILED"
    status = head.archive.read_status()
    assert status.failure and (status.failure.kind, status.reason) == ("config", "model: does not exist")
    head.archive.set_status("QUEUED", closed_at=None)
    head.gate.findings = []
    head.gate.details |= {"capacity_problem": NO_CAPACITY, "checkpoint": "/private/jobs/sft-1/checkpoints/1"}
    assert admit_dependent("grpo-1", head.services, head.gate.examine) == "QUEUED"
    assert (head.archive.plan().depends_on, head.archive.read_status().reason) == (None, NO_CAPACITY)
    assert head.archive.read_status().lineage == {"checkpoint": "/private/jobs/sft-1/checkpoints/1"}
    assert worker_secrets.load(head.archive.path) == {"HF_TOKEN": "hf_secret"}


def test_what_an_earlier_job_does_not_make_is_refused_at_once(head: Head, earlier: Archive) -> None:
    head.gate.findings = [Finding("x", "is true", "do", key="x"), Finding("model", "is none", "stage it", key="model")]
    for name, state, key in (("sft-1", "RUNNING", "x"), ("sft-1", "FAILED", "depends_on"), ("sft-2", "", "depends_on")):
        earlier.set_status(state)
        with pytest.raises(RefusedError) as refused:
            head.submit(head.jobspec(depends_on=name))
        assert key in [finding.key for finding in refused.value.findings]
        assert "model" not in [finding.key for finding in refused.value.findings] and not head.archive.exists()


def test_without_a_wish_to_wait_nothing_is_left_of_it(head: Head) -> None:
    # At the gate there was room for the job, and meanwhile another one was submitted.
    head.ray.statuses["sft-1"] = "PENDING"
    head.ray.metadata["sft-1"] = Demand(1, 1, 10, 1).to_metadata()
    with pytest.raises(RefusedError) as refused:
        head.submit(head.jobspec())
    (finding,) = refused.value.findings
    assert finding.key == "resources"
    assert finding.problem.endswith(", once sft-1 has what it needs")
    assert_nothing_changed(head)


def test_the_place_is_kept_until_ray_has_the_job(head: Head) -> None:
    def submitted() -> None:
        with pytest.raises(BusyError), admission_lock(head.registry.path, 0):
            pytest.fail("another one may submit")

    head.ray.on_submit = submitted
    assert head.submit(head.jobspec()).result["state"] == "SUBMITTED"
    with admission_lock(head.registry.path, 0):
        pass


def test_secrets_go_to_the_file_of_secrets_only(head: Head) -> None:
    values = {"HF_TOKEN": "hf_secret_1", "OTHER": "not_for_this_job"}
    result = head.submit(head.jobspec(secrets=["HF_TOKEN"]), secrets=values)
    assert worker_secrets.load(head.archive.path) == {"HF_TOKEN": "hf_secret_1"}
    assert worker_secrets.secrets_path(head.archive.path).stat().st_mode & 0o777 == 0o600
    assert "hf_secret_1" not in str(head.ray.submitted) + str(result) + str(result.result)
    holders = [path.name for path in head.root.rglob("*") if path.is_file() and b"hf_secret_1" in path.read_bytes()]
    assert holders == ["grpo-1.json"]
    assert "hf_secret_1" not in repr(JobRequest(jobspec={}, secrets=values))


@pytest.mark.parametrize(
    ("changes", "request_changes", "places"),
    [
        ({"workload": "gpro"}, {}, ["workload"]),
        ({"model": "a b", "code_pth": "x"}, {"command_line": [{"retries": None}]}, ["retries", "code_pth", "model"]),
        *(({"submission_id": name}, {}, ["submission_id"]) for name in ("../other/x", "A")),
        ({"secrets": ["HF_TOKEN"]}, {"secrets": {"HF_TOKEN": None}}, ["secrets.HF_TOKEN"]),
        *(({}, {"limits": {"user": limit}}, ["job_limits.user"]) for limit in (3, {"gpu": 1}, {"jobs": -1})),
        ({"tags": {"user": "ann"}}, {"limits": {"user": {"gpus": 0}}}, ["job_limits"]),
    ],
)
@pytest.mark.parametrize("check", [False, True])
def test_what_is_refused_changes_nothing(
    head: Head, changes: dict[str, Any], request_changes: dict[str, Any], places: list[str], check: bool
) -> None:
    with pytest.raises(RefusedError) as refused:
        head.submit(head.jobspec(wait_for_resources="2h", **changes), check=check, **request_changes)
    assert [finding.key or finding.where for finding in refused.value.findings] == places
    assert_nothing_changed(head)


def test_a_job_has_to_end_before_its_machines_are_taken_away(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    head.clock.now = 1000.0
    monkeypatch.setenv("ARGUS_VERL_STOP_AT", "1000")
    with pytest.raises(RefusedError) as refused:
        head.submit(head.jobspec())
    assert [finding.key for finding in refused.value.findings] == ["deadline"]
    monkeypatch.setenv("ARGUS_VERL_STOP_AT", "1060")
    findings = [*head.submit(head.jobspec(deadline="2m")).findings]
    assert [(finding.key, finding.severity) for finding in findings] == [("deadline", WARNING)]


def test_a_submission_that_fails(head: Head) -> None:
    head.ray.on_submit = lambda: 1 / 0
    with pytest.raises(OperationError, match=str(head.archive.path)):
        head.submit(head.jobspec())
    assert head.archive.read_status().state == "FAILED"


def test_what_cannot_be_registered_is_closed(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steward does not know it."""

    monkeypatch.setattr(Registry, "write", lambda *_arguments: os.open("/none", 0))
    with pytest.raises(OperationError, match="No such file"):
        head.submit(head.jobspec())
    assert head.archive.read_status().state == "FAILED" and head.archive.read_status().closed_at
    assert head.ray.changes == []


def test_a_submission_that_is_interrupted_is_found_by_the_head(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its secrets would remain for ever: from the moment they are stored, the job is known to need a steward."""
    checks: list[bool] = []

    def stored(_archive: Path, _values: object) -> None:
        checks.append(head.archive.needs_steward() and not head.archive.has_steward())
        checks.append(head.registry.ids() == ["grpo-1"])

    monkeypatch.setattr(worker_secrets, "store", stored)
    head.submit(head.jobspec(secrets=["HF_TOKEN"]), secrets={"HF_TOKEN": "hf_secret"})
    assert checks == [True, True]


@pytest.mark.parametrize("state", ["SUBMITTED", "FAILED"])
def test_the_same_jobspec_again_is_the_same_job(head: Head, state: str) -> None:
    first = head.submit(head.jobspec())
    head.archive.set_status(state)
    # What a job writes into its archive does not count.
    head.archive.write_json("config/job_spec.json", {"workload": "sft"})
    head.ray.calls.clear()
    again = head.submit(head.jobspec())
    assert again.result == {**{key: first.result[key] for key in again.result}, "state": state}
    assert head.ray.changes == []
    assert head.gate.examined == ["grpo-1"]


def test_without_a_steward_nothing_is_submitted(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would look after the job."""
    monkeypatch.setattr(submit_module, "steward_runs", functools.partial(steward_runs, seconds=0))
    head.steward.close()
    with pytest.raises(OperationError, match="steward"):
        head.submit(head.jobspec())
    assert_nothing_changed(head)


@pytest.mark.parametrize("begins", ["before", "while the gate examines this one"])
def test_two_submissions_at_the_same_moment(head: Head, begins: str) -> None:
    """The other one has reserved the archive, and fills it later."""
    spec, examine, has_reserved = head.jobspec(), head.gate.examine, threading.Event()

    def submit_slowly() -> None:
        with admission_lock(head.registry.path):
            head.archive.reserve()
            has_reserved.set()
            time.sleep(0.2)
            head.registry.write(RegisteredJob("grpo-1", time.time(), spec, str(head.root)))
            time.sleep(0.2)
            head.archive.write_json("config/job_spec.json", spec)
            head.archive.write_json("config/plan.json", {"overrides": ["a=1"]})
            head.archive.write_json("steward.json", {"time": time.time()})
            head.archive.set_status("SUBMITTED")

    other = threading.Thread(target=submit_slowly)

    def begin() -> None:
        other.start()
        has_reserved.wait()

    def slow(*arguments: Any) -> GateResult:
        begin()
        return examine(*arguments)

    if begins == "before":
        begin()
    else:
        head.gate.examine = slow
    result = head.submit(spec)
    other.join()
    assert (result.changed, result.result["state"], result.result["overrides"]) == (False, "SUBMITTED", ["a=1"])
    assert head.ray.changes == []


@pytest.mark.parametrize("is_registered", [True, False])
def test_an_archive_of_another_jobspec_is_no_earlier_submission(head: Head, is_registered: bool) -> None:
    """Otherwise a job could plant an archive with the operator's JobSpec and a plan of its own."""
    head.submit(head.jobspec())
    # The order of keys does not matter.
    assert not head.submit(dict(reversed(head.jobspec().items()))).changed
    if not is_registered:
        head.registry.remove("grpo-1")
    head.ray.calls.clear()
    with pytest.raises(RefusedError) as refused:
        head.submit(head.jobspec(model="other") if is_registered else head.jobspec())
    assert [finding.key for finding in refused.value.findings] == ["submission_id"]
    assert head.ray.changes == []


def test_an_id_whose_archive_was_removed_is_free(head: Head) -> None:
    head.registry.write(RegisteredJob("grpo-1", 1.0, {"workload": "sft"}, "/elsewhere"))
    assert head.submit(head.jobspec()).changed
    registered = head.registry.read("grpo-1")
    assert registered is not None and registered.jobspec["workload"] == "grpo"


def test_a_reward_function_that_has_changed_since(head: Head) -> None:
    code = head.root / "user" / "code"
    code.mkdir(parents=True)
    (code / "r.py").write_text("one")
    jobspec = head.jobspec(reward_fn_path="r.py")
    head.submit(jobspec)
    assert (head.archive.path / "config/files/user/code/r.py").read_text() == "one"
    one = {"user/code/r.py": hashlib.sha256(b"one").hexdigest()}
    assert head.submit({**jobspec, "submission_id": "grpo-2"}, check=True).result["files"] == one
    again = {key: value for key, value in jobspec.items() if key != "submission_id"}
    assert head.submit(again, resubmitted_from="grpo-1").findings == ()
    (code / "r.py").write_text("two")
    for check in (True, False):
        (finding,) = head.submit(again, resubmitted_from="grpo-1", check=check).findings
        assert "changed: user/code/r.py" in finding.problem
    # It is a new job otherwise.
    assert head.submit(again).findings == ()
