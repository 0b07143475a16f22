from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.argus.verl.plugins.module_utils import jobspec
from ansible_collections.argus.verl.plugins.module_utils.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.launcher import archive as archive_module
from ansible_collections.argus.verl.plugins.module_utils.launcher import evidence, launch
from ansible_collections.argus.verl.plugins.module_utils.launcher.archive import Archive
from ansible_collections.argus.verl.plugins.module_utils.submission import (
    file_findings,
    read_marker,
    read_verl_version,
    same_spec,
    send,
)

CLUSTER = jobspec.Cluster("cpu", 2, 4, 48)
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
    findings, spec = jobspec.check(given(root, **changes))
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


@pytest.mark.parametrize("version", ["0.8.0", "0.10.0", "0.90.1", "1.0"])
def test_a_version_of_verl_that_names_its_settings_otherwise(root: Path, version: str) -> None:
    path = root / "common" / "code" / "verl" / "other"
    snapshot(path, version)
    (finding,) = found(root, code_path="other")
    assert (finding.where, finding.what) == ("code_path", f"{path} is verl {version}")
    assert finding.todo.startswith("use a snapshot of verl 0.9:")


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


def test_a_reward_without_that_function(root: Path) -> None:
    assert found(root, reward_fn_path="r.py") == [
        Finding("reward_fn_path", f"{root}/user/code/r.py has no function compute_score", "correct its name")
    ]
    assert [finding.what for finding in found(root, reward_fn_path="r.py:digit")] == [
        f"{root}/user/code/r.py has no function digit"
    ]


@pytest.mark.parametrize(
    "source",
    [
        "async def score(**all): ...",
        "score = len",
        "from elsewhere import score",
        "from elsewhere import other as score",
        "# a comment\n\n\ndef score(a,\n  b): ...",
    ],
)
def test_ways_to_have_a_function(root: Path, source: str) -> None:
    (root / "user" / "code" / "r.py").write_text(f"{source}\n")
    assert found(root, reward_fn_path="r.py:score") == []


def test_a_function_inside_another_one_is_none(root: Path) -> None:
    (root / "user" / "code" / "r.py").write_text("def other():\n    def score(): ...\n")
    assert len(found(root, reward_fn_path="r.py:score")) == 1


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


# --- The call ---------------------------------------------------------------------------------------------------------


class Client:
    """In the place of Ray's, which is not installed here; keeps what it is asked for."""

    def __init__(self, answer: Callable[[], str]) -> None:
        self.answer = answer
        self.arguments: dict[str, Any] = {}

    def submit_job(self, **arguments: Any) -> str:
        self.arguments = arguments
        return self.answer()


def planned(asked: dict[str, Any]) -> jobspec.Job:
    findings, spec = jobspec.check(asked)
    assert findings == []
    return jobspec.plan(spec, CLUSTER, "verl-0.9.1", "grpo-1")


def no_answer() -> str:
    raise ConnectionError("the head does not answer")


@pytest.fixture
def archive(root: Path) -> Archive:
    return Archive(root / "jobs" / "grpo-1")


def test_a_job_that_is_sent(root: Path, archive: Archive) -> None:
    asked = given(root, trainer_overrides={"trainer": {"save_freq": 5}})
    job = planned(asked)
    client = Client(lambda: "grpo-1")
    send(archive, asked, job, client)
    assert client.arguments == {
        "entrypoint": f"python3 {root}/jobs/grpo-1/config/launcher run {root}/jobs/grpo-1",
        "submission_id": "grpo-1",
        "runtime_env": job.runtime_env,
        "entrypoint_num_cpus": 1,
        "entrypoint_resources": {"worker_node": 1},
    }
    status = archive.status()
    assert (status["state"], status["workload"], status["code_id"]) == ("SUBMITTED", "grpo", "verl-0.9.1")


def test_the_archive_is_complete(root: Path, archive: Archive) -> None:
    asked = given(root, trainer_overrides={"trainer": {"save_freq": 5}})
    job = planned(asked)
    send(archive, asked, job, Client(lambda: "grpo-1"))
    files = sorted(str(path.relative_to(archive.path)) for path in archive.path.rglob("*") if path.is_file())
    assert files == [
        "config/job_spec.json",
        "config/launcher/__main__.py",
        "config/launcher/argus_launcher/__init__.py",
        "config/launcher/argus_launcher/archive.py",
        "config/launcher/argus_launcher/evidence.py",
        "config/launcher/argus_launcher/launch.py",
        "config/plan.json",
        "config/runtime_env.json",
        "config/submit_cmd.txt",
        "events.jsonl",
        "status.json",
    ]
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
    for module in (archive_module, evidence, launch):
        copy = archive.path / "config" / "launcher" / "argus_launcher" / f"{module.__name__.rpartition('.')[2]}.py"
        assert copy.read_text() == inspect.getsource(module)


def test_the_launcher_in_the_archive_needs_nothing_else(root: Path, archive: Archive) -> None:
    asked = given(root)
    send(archive, asked, planned(asked), Client(lambda: "grpo-1"))
    launcher = str(archive.path / "config" / "launcher")
    # -I -S: neither the collection nor any package of this Python.
    done = subprocess.run([sys.executable, "-I", "-S", launcher], capture_output=True, text=True, check=False, cwd=root)
    assert (done.returncode, done.stderr) == (
        64,
        "usage: launcher run ARCHIVE | launcher evidence ARCHIVE MOMENT\n",
    )


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
