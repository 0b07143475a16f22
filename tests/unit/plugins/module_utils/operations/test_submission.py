from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.job.capacity import Cluster
from ansible_collections.argus.verl.plugins.module_utils.job.parse import parse_jobspec
from ansible_collections.argus.verl.plugins.module_utils.job.plan import Job, plan_job
from ansible_collections.argus.verl.plugins.module_utils.job.verl_releases import Profile
from ansible_collections.argus.verl.plugins.module_utils.launcher import attempts, redact
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import Archive
from ansible_collections.argus.verl.plugins.module_utils.operations import submission
from ansible_collections.argus.verl.plugins.module_utils.operations.submission import LAUNCHER_MODULES, same_spec, send

CLUSTER = Cluster("cpu", 2, 4, 48)
REWARD = "def digit_share(data_source, solution_str, ground_truth, extra_info=None):\n    return 0.0\n"


def snapshot(path: Path, version: str = "0.9.1", marker: str | None = None) -> None:
    (path / "verl" / "version").mkdir(parents=True)
    (path / "verl" / "version" / "version").write_text(f"{version}\n")
    (path / "mvp_marker.py").write_text(marker if marker is not None else f'MARKER = "{path.name}"\n')


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A shared root with all that the JobSpec below names."""
    shared = tmp_path / "private"
    (shared / "jobs").mkdir(parents=True)
    snapshot(shared / "common" / "code" / "verl" / "verl-0.9.1")
    (shared / "common" / "models" / "tiny").mkdir(parents=True)
    (shared / "common" / "models" / "tiny" / "config.json").write_text("{}")
    (shared / "datasets" / "gsm8k").mkdir(parents=True)
    for split in ("train", "val"):
        (shared / "datasets" / "gsm8k" / f"{split}.parquet").touch()
    (shared / "user" / "code").mkdir(parents=True)
    (shared / "user" / "code" / "r.py").write_text(REWARD)
    return shared


def given(root: Path, **changes: Any) -> dict[str, Any]:
    asked = {
        "workload": "grpo",
        "code_path": "verl-0.9.1",
        "model": "tiny",
        "dataset": "gsm8k",
        "reward_fn_path": "r.py:digit_share",
        "shared_root": str(root),
    }
    return asked | changes


# --- The call ---------------------------------------------------------------------------------------------------------


class Client:
    """In the place of Ray's, which is not installed here; keeps what it is asked for."""

    def __init__(self, answer: Callable[[], str], status: str = "") -> None:
        self.answer = answer
        self.status = status
        self.arguments: dict[str, Any] = {}

    def submit_job(self, **arguments: Any) -> str:
        self.arguments = arguments
        return self.answer()

    def get_job_status(self, job_id: str) -> str:
        if not self.status:
            raise RuntimeError(f"Job {job_id} does not exist")
        return self.status


@pytest.fixture(autouse=True)
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """In the place of the launcher's processes: what it is asked for."""
    asked: list[tuple[str, ...]] = []

    def run_launcher(archive: Archive, *arguments: str) -> None:
        # It reads what is in the archive by then.
        assert archive.read_json("config/plan.json")
        asked.append((archive.submission_id, archive.status()["state"], *arguments))

    monkeypatch.setattr(Archive, "run_launcher", run_launcher)
    return asked


def planned(asked: dict[str, Any]) -> Job:
    findings, spec = parse_jobspec(asked)
    assert findings == []
    return plan_job(spec, CLUSTER, "verl-0.9.1", "grpo-1", Profile("0.9.1", (0, 9, 1)))


def no_answer() -> str:
    raise ConnectionError("the head does not answer")


@pytest.fixture
def archive(root: Path) -> Archive:
    return Archive(root / "jobs" / "grpo-1")


def test_a_job_that_is_sent(root: Path, archive: Archive, launched: list[tuple[str, ...]]) -> None:
    asked = given(root, trainer_overrides={"trainer": {"save_freq": 5}})
    job = planned(asked)
    client = Client(lambda: "grpo-1")
    assert send(archive, asked, job, client) == "SUBMITTED"
    assert client.arguments == {
        "entrypoint": f"python3 {root}/jobs/grpo-1/config/launcher run {root}/jobs/grpo-1 1",
        "submission_id": "grpo-1",
        "runtime_env": job.runtime_env,
        "entrypoint_num_cpus": 1,
        "entrypoint_resources": {"worker_node": 1},
        "metadata": {"submission_id": "grpo-1", "attempt": "1"},
    }
    status = archive.status()
    assert (status["state"], status["workload"], status["code_id"]) == ("SUBMITTED", "grpo", "verl-0.9.1")
    assert (status["attempt"], status["tags"], status["lineage"]) == (1, {}, {})
    assert status["attempt_submitted_at"] >= status["submitted_at"]
    assert launched == [("grpo-1", "SUBMITTED", "keep")]


def test_a_job_that_waits_is_left_to_its_keeper(root: Path, archive: Archive, launched: list[tuple[str, ...]]) -> None:
    asked = given(root, wait_for_resources="2h")
    client = Client(no_answer)
    assert send(archive, asked, planned(asked), client, queue=True) == "QUEUED"
    assert client.arguments == {}
    status = archive.status()
    assert (status["state"], status["attempt"]) == ("QUEUED", 1)
    assert status["queued_at"] >= status["submitted_at"]
    assert launched == [("grpo-1", "QUEUED", "keep")]


def test_what_a_job_is_found_by(root: Path, archive: Archive) -> None:
    # As Ansible takes a mapping from a command line.
    asked = given(root, tags="team=a,try=2")
    send(archive, asked, planned(asked), Client(lambda: "grpo-1"), lineage={"resubmitted_from": "grpo-0"})
    status = archive.status()
    assert (status["tags"], status["lineage"]) == ({"team": "a", "try": "2"}, {"resubmitted_from": "grpo-0"})


def test_a_jobspec_whose_workload_is_the_clusters_default(root: Path, archive: Archive) -> None:
    """The archive keeps it as its author wrote it."""
    asked = given(root)
    written = {key: value for key, value in asked.items() if key != "workload"}
    send(archive, written, planned(asked), Client(lambda: "grpo-1"))
    assert archive.status()["workload"] == "grpo"
    assert archive.read_json("config/job_spec.json") == written


def test_secrets_are_beside_the_archive_and_not_in_it(root: Path, archive: Archive) -> None:
    asked = given(root, secrets=["HF_TOKEN"])
    client = Client(lambda: "grpo-1")
    send(archive, asked, planned(asked), client, secrets={"HF_TOKEN": "hf_secret"})
    assert redact.load(archive.path) == {"HF_TOKEN": "hf_secret"}
    assert redact.secrets_file(archive.path).stat().st_mode & 0o777 == 0o600
    assert "hf_secret" not in str(client.arguments)
    for path in archive.path.rglob("*"):
        assert path.is_dir() or b"hf_secret" not in path.read_bytes()


def test_secrets_of_a_job_that_could_not_be_sent_are_gone(root: Path, archive: Archive) -> None:
    asked = given(root, secrets=["HF_TOKEN"])
    with pytest.raises(ConnectionError):
        send(archive, asked, planned(asked), Client(no_answer), secrets={"HF_TOKEN": "hf_secret"})
    assert redact.load(archive.path) == {}


def test_the_archive_is_complete(root: Path, archive: Archive) -> None:
    asked = given(root, trainer_overrides={"trainer": {"save_freq": 5}})
    job = planned(asked)
    send(archive, asked, job, Client(lambda: "grpo-1"), resolved="trainer:\n  save_freq: 5\n")
    files = sorted(str(path.relative_to(archive.path)) for path in archive.path.rglob("*") if path.is_file())
    modules = {module.__name__.rpartition(".")[2]: module for module in LAUNCHER_MODULES}
    assert files == sorted(
        [
            "config/job_spec.json",
            "config/launcher/__main__.py",
            "config/launcher/argus_launcher/__init__.py",
            *(f"config/launcher/argus_launcher/{name}.py" for name in modules),
            "config/plan.json",
            "config/resolved.yaml",
            "config/runtime_env.json",
            "config/submit_cmd.txt",
            "events.jsonl",
            "status.json",
        ]
    )
    assert {path.name for path in archive.path.iterdir() if path.is_dir()} == {
        "checkpoints",
        "config",
        "debug",
        "logs",
    }
    assert archive.read_json("config/job_spec.json") == asked
    assert archive.read_json("config/runtime_env.json") == job.runtime_env
    assert archive.read_json("config/plan.json") == job.plan()
    assert (archive.path / "config" / "submit_cmd.txt").read_text() == job.submit_command()
    assert (archive.path / "config" / "resolved.yaml").read_text() == "trainer:\n  save_freq: 5\n"
    for name, module in modules.items():
        copy = archive.path / "config" / "launcher" / "argus_launcher" / f"{name}.py"
        assert copy.read_text() == inspect.getsource(module)


def test_no_module_of_the_launcher_stays_behind() -> None:
    package = Path(str(attempts.__file__)).parent
    names = {path.stem for path in package.glob("*.py")} - {"__init__"}
    assert {module.__name__.rpartition(".")[2] for module in LAUNCHER_MODULES} == names


def test_the_launcher_in_the_archive_needs_nothing_else(root: Path, archive: Archive) -> None:
    asked = given(root)
    send(archive, asked, planned(asked), Client(lambda: "grpo-1"))
    launcher = str(archive.path / "config" / "launcher")
    # -I -S: neither the collection nor any package of this Python.
    done = subprocess.run([sys.executable, "-I", "-S", launcher], capture_output=True, text=True, check=False, cwd=root)
    assert done.returncode == 64
    assert done.stderr.startswith("usage: launcher run ARCHIVE ATTEMPT\nusage: launcher keep ARCHIVE\n")


def test_a_job_that_could_not_be_sent_leaves_the_reason(root: Path, archive: Archive) -> None:
    asked = given(root)
    with pytest.raises(ConnectionError, match="the head does not answer"):
        send(archive, asked, planned(asked), Client(no_answer))
    status = archive.status()
    assert (status["state"], status["workload"]) == ("FAILED", "grpo")
    assert status["reason"] == "it could not be submitted: the head does not answer"
    assert archive.read_json("config/job_spec.json") == asked
    events = [json.loads(line)["event"] for line in (archive.path / "events.jsonl").read_text().splitlines()]
    assert events == ["SUBMITTED", "FAILED"]


def test_a_job_that_was_sent_although_nobody_said_so(root: Path, archive: Archive) -> None:
    asked = given(root)
    assert send(archive, asked, planned(asked), Client(no_answer, "PENDING")) == "SUBMITTED"
    assert archive.status()["state"] == "SUBMITTED"


def test_an_archive_that_could_not_be_filled_leaves_the_reason(
    root: Path, archive: Archive, monkeypatch: pytest.MonkeyPatch, launched: list[tuple[str, ...]]
) -> None:
    def full(_archive: Archive) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(submission, "write_launcher", full)
    client = Client(lambda: "grpo-1")
    asked = given(root)
    with pytest.raises(OSError, match="No space left"):
        send(archive, asked, planned(asked), client)
    status = archive.status()
    assert (status["state"], status["reason"]) == (
        "FAILED",
        "it could not be submitted: [Errno 28] No space left on device",
    )
    assert client.arguments == {}
    assert launched == []


def test_an_interrupted_submission_leaves_the_reason_too(root: Path, archive: Archive) -> None:
    def interrupt() -> str:
        raise KeyboardInterrupt

    asked = given(root)
    with pytest.raises(KeyboardInterrupt):
        send(archive, asked, planned(asked), Client(interrupt))
    assert archive.status()["state"] == "FAILED"


def test_an_id_is_sent_once(root: Path, archive: Archive) -> None:
    asked = given(root)
    send(archive, asked, planned(asked), Client(lambda: "grpo-1"))
    before = (archive.path / "status.json").read_text()
    again = Client(lambda: "grpo-1")
    with pytest.raises(FileExistsError):
        send(archive, given(root, model="other"), planned(asked), again)
    assert again.arguments == {}
    assert archive.read_json("config/job_spec.json") == asked
    assert (archive.path / "status.json").read_text() == before


def test_the_same_jobspec(root: Path, archive: Archive) -> None:
    asked = given(root, trainer_overrides={"trainer": {"save_freq": 5}}, resources={"nnodes": None})
    assert not same_spec(archive, asked)
    send(archive, asked, planned(asked), Client(lambda: "grpo-1"))
    assert same_spec(archive, asked)
    # Neither the order of keys nor tuples in place of lists make another JobSpec.
    assert same_spec(archive, dict(reversed(asked.items())))
    assert not same_spec(archive, {**asked, "model": "other"})
    assert not same_spec(archive, {**asked, "trainer_overrides": {"trainer": {"save_freq": 6}}})
