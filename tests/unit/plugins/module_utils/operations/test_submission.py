from __future__ import annotations

import inspect
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.gate.head import (
    file_findings,
    read_marker,
    read_verl_version,
    resume_findings,
    snapshot_profile,
)
from ansible_collections.argus.verl.plugins.module_utils.job.capacity import Cluster
from ansible_collections.argus.verl.plugins.module_utils.job.parse import parse_jobspec
from ansible_collections.argus.verl.plugins.module_utils.job.plan import Job, plan_job
from ansible_collections.argus.verl.plugins.module_utils.job.verl_releases import Profile
from ansible_collections.argus.verl.plugins.module_utils.launcher import attempts, redact
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import Archive
from ansible_collections.argus.verl.plugins.module_utils.launcher.checkpoints import Checkpoint
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


def found(root: Path, **changes: Any) -> list[Finding]:
    findings, spec = parse_jobspec(given(root, **changes))
    assert findings == []
    return file_findings(spec)


# --- What has to be there ---------------------------------------------------------------------------------------------


def test_everything_is_there(root: Path) -> None:
    assert found(root) == []
    assert found(root, workload="sft", reward_fn_path=None) == []
    absolute = {
        "code_path": f"{root}/common/code/verl/verl-0.9.1",
        "model": f"{root}/common/models/tiny",
        "dataset": f"{root}/datasets/gsm8k",
        "reward_fn_path": f"{root}/user/code/r.py:digit_share",
    }
    assert found(root, **absolute) == []


def test_another_shared_root_is_the_only_finding(tmp_path: Path) -> None:
    assert found(tmp_path) == [
        Finding(
            "shared_root",
            f"{tmp_path}/jobs is not there on the head",
            "give the path at which nodes see the shared root; cluster_up.yml makes jobs/ in it",
        )
    ]


def test_a_missing_snapshot_lists_those_there(root: Path) -> None:
    home = root / "common" / "code" / "verl"
    snapshot(home / "verl-0.9.0", "0.9.0")
    snapshot(home / ".verl-0.9.2.staging-12345678", "0.9.2")
    (home / "README").touch()
    assert found(root, code_path="verl-0.9.2") == [
        Finding(
            "code_path",
            f"there is no snapshot {home}/verl-0.9.2",
            "stage it with stage.yml, or use one that is there: verl-0.9.0, verl-0.9.1",
        )
    ]


def test_a_missing_snapshot_where_there_is_none(root: Path) -> None:
    (finding,) = found(root, code_path=f"{root}/elsewhere/verl")
    assert finding.todo == "stage it with stage.yml, or use one that is there: none"


@pytest.mark.parametrize(
    "marker", [None, "", "MARKER = = 1", "OTHER = 1", "raise ValueError(1)", "import there_is_no_such_module"]
)
def test_a_snapshot_without_a_marker(root: Path, marker: str | None) -> None:
    path = root / "common" / "code" / "verl" / "plain"
    snapshot(path, marker=marker or "")
    if marker is None:
        (path / "mvp_marker.py").unlink()
    assert found(root, code_path="plain") == [
        Finding(
            "code_path",
            f"{path} has no mvp_marker.py with a MARKER",
            "snapshots come from stage.yml; a plain directory may change under a running job",
        )
    ]


@pytest.mark.parametrize("version", ["0.4.1", "0.10.0", "0.90.1", "1.0"])
def test_a_version_of_verl_that_nobody_has_read(root: Path, version: str) -> None:
    path = root / "common" / "code" / "verl" / "other"
    snapshot(path, version)
    (finding,) = found(root, code_path="other")
    assert (finding.where, finding.what) == ("code_path", f"{path} is verl {version}")
    assert finding.todo.startswith("use a snapshot of verl 0.5 to 0.9: ")


@pytest.mark.parametrize("version", ["0.5.0", "0.7.1", "0.9.2"])
def test_a_version_of_verl_whose_names_are_known(root: Path, version: str) -> None:
    path = root / "common" / "code" / "verl" / "other"
    snapshot(path, version)
    assert found(root, code_path="other") == []
    profile = snapshot_profile(path)
    assert profile
    assert profile.version == version


def test_what_the_snapshots_verl_does_not_read(root: Path) -> None:
    snapshot(root / "common" / "code" / "verl" / "other", "0.8.0")
    asked = {"code_path": "other", "trainer_overrides": {"critic.model.fsdp_config.param_offload": True}}
    assert found(root, **asked) == [
        Finding(
            "trainer_overrides: critic.model.fsdp_config.param_offload",
            "is not read by verl 0.8.0",
            "say critic.fsdp.param_offload",
        )
    ]


def test_a_snapshot_of_no_version(root: Path) -> None:
    path = root / "common" / "code" / "verl" / "verl-0.9.1"
    (path / "verl" / "version" / "version").unlink()
    assert read_verl_version(path) is None
    assert [finding.what for finding in found(root)] == [f"{path} is verl unknown"]


def test_the_marker_and_the_version(root: Path) -> None:
    path = root / "common" / "code" / "verl" / "verl-0.9.1"
    assert read_marker(path) == "verl-0.9.1"
    assert read_verl_version(path) == "0.9.1"


def test_a_model_without_its_configuration(root: Path) -> None:
    (root / "common" / "models" / "tiny" / "config.json").unlink()
    assert found(root) == [
        Finding("model", f"{root}/common/models/tiny/config.json is not there", "stage it, or correct model")
    ]


def test_a_dataset_that_lacks_val(root: Path) -> None:
    (root / "datasets" / "gsm8k" / "val.parquet").unlink()
    assert found(root) == [
        Finding("dataset", f"{root}/datasets/gsm8k/val.parquet is not there", "stage it, or correct dataset")
    ]


def test_a_reward_that_is_not_there(root: Path) -> None:
    assert found(root, reward_fn_path="none.py") == [
        Finding("reward_fn_path", f"{root}/user/code/none.py is not there", "stage it, or correct reward_fn_path")
    ]


@pytest.mark.parametrize(
    ("key", "name", "file"),
    [
        ("model", "common/models/tiny", "config.json"),
        ("dataset", "datasets/gsm8k", "train.parquet"),
        ("code_path", "common/code/verl/verl-0.9.1", "mvp_marker.py"),
        ("reward_fn_path", "user/code/r.py", ""),
    ],
)
def test_a_link_that_leads_out_of_the_shared_root(root: Path, key: str, name: str, file: str) -> None:
    inside, outside = root / name, root.parent / "outside"
    inside.rename(outside)
    inside.symlink_to(outside)
    first = found(root)[0]
    assert (first.where, first.what) == (
        key,
        f"{inside} leads out of the shared root, to {outside / file if file else outside}",
    )
    assert first.todo == f"copy it to {root}: a link out of it may lead nowhere on another node"


def test_a_link_inside_the_shared_root_will_do(root: Path) -> None:
    (root / "common" / "models" / "linked").symlink_to("tiny")
    assert found(root, model="linked") == []


def test_a_shared_root_that_is_a_link_itself(root: Path) -> None:
    link = root.parent / "link"
    link.symlink_to(root)
    assert found(link) == []


def test_everything_is_said_at_once(root: Path) -> None:
    findings = found(root, code_path="a", model="b", dataset="c", reward_fn_path="d.py")
    assert [finding.where for finding in findings] == ["code_path", "model", "dataset", "dataset", "reward_fn_path"]


# --- Going on from another job ----------------------------------------------------------------------------------------


def checkpoint(root: Path, step: int, size: int = 4, workload: str = "sft") -> Path:
    """A checkpoint of the job sft-1, complete, and the last that verl has finished."""
    archive = Archive(root / "jobs" / "sft-1")
    if not archive.path.is_dir():
        archive.reserve()
        archive.write_json("config/plan.json", {"workload": workload})
    path = archive.path / "checkpoints" / f"global_step_{step}"
    path.mkdir()
    for rank in range(size):
        zipfile.ZipFile(path / f"model_world_size_{size}_rank_{rank}.pt", "w").close()
    (path.parent / "latest_checkpointed_iteration.txt").write_text(str(step))
    return path


def resumed(root: Path, world_size: int = 4, **changes: Any) -> tuple[list[Finding], Checkpoint | None]:
    asked = {"workload": "sft", "reward_fn_path": None, "resume_from": "sft-1", **changes}
    findings, spec = parse_jobspec(given(root, **asked))
    assert findings == []
    return resume_findings(spec, world_size)


def test_a_job_that_goes_on_from_no_other(root: Path) -> None:
    assert resumed(root, resume_from=None) == ([], None)


def test_a_job_that_goes_on_from_the_last_checkpoint(root: Path) -> None:
    checkpoint(root, 10)
    path = checkpoint(root, 20)
    assert resumed(root) == ([], Checkpoint(20, path, 4, ""))


def test_a_job_that_goes_on_from_the_last_complete_checkpoint(root: Path) -> None:
    path = checkpoint(root, 10)
    (checkpoint(root, 20) / "model_world_size_4_rank_3.pt").unlink()
    assert resumed(root) == ([], Checkpoint(10, path, 4, ""))


def test_a_job_that_goes_on_from_one_that_there_is_not(root: Path) -> None:
    assert resumed(root) == ([Finding("resume_from", "there is no job sft-1", "see status.yml")], None)
    checkpoint(root, 10)
    findings, found = resumed(root, resume_from="sft-2")
    assert findings == [Finding("resume_from", "there is no job sft-2", 'did you mean "sft-1"?')]
    assert found is None


def test_a_job_that_goes_on_from_one_that_is_not_as_it(root: Path) -> None:
    checkpoint(root, 10)
    findings, found = resumed(root, workload="grpo")
    assert findings == [
        Finding("resume_from", "sft-1 is a job of sft, this one of grpo", "go on from a job of the same workload")
    ]
    assert found is None


def test_a_job_that_goes_on_from_one_without_a_checkpoint(root: Path) -> None:
    path = checkpoint(root, 10)
    (path / "model_world_size_4_rank_0.pt").unlink()
    findings, found = resumed(root)
    what = f"sft-1 has no complete checkpoint: {path} has no model shard of rank 0 of 4"
    assert findings == [Finding("resume_from", what, "choose another job")]
    assert found is None
    (path.parent / "latest_checkpointed_iteration.txt").unlink()
    (finding,), found = resumed(root)
    assert finding.what == "sft-1 has no complete checkpoint: it has none"


def test_a_job_that_goes_on_with_another_number_of_gpus(root: Path) -> None:
    path = checkpoint(root, 10, size=2)
    findings, found = resumed(root, world_size=4)
    what = f"{path} is of 2 processes, this job has 4"
    assert findings == [Finding("resume_from", what, "ask for as many GPUs in resources")]
    assert found is None
    # Of another backend's, that cannot be told.
    for file in path.iterdir():
        file.rename(file.with_suffix(".distcp"))
    assert resumed(root, world_size=4) == ([], Checkpoint(10, path, 0, ""))


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
