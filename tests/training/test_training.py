"""Real verl on real Ray: every workload trains, resumes, runs beside another one, and leaves a complete archive."""

from __future__ import annotations

import contextlib
import json
import math
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from acceptance import seen, typed
from archive_files import lines_of, metrics_of
from system import HEAD, NODES, REPO, SHARED_ROOT, Job, Submit, in_ray, module, on_node, playbook, processes_of, said

# A node in the table of `ray list nodes`: its id, its address, whether it is the head, and that it lives.
NODE = re.compile(r"^ *\d+  (\w+) +(\S+) +(True|False) +(ALIVE)", re.MULTILINE)


def assert_off_the_head(job: Job) -> None:
    """According to Ray's own records, it was submitted from the head, and the driver ran on a worker."""
    (entry,) = [line for line in typed("1.1").split("JobDetails(") if f"submission_id='{job.submission_id}'" in line]
    seen("1.1", f"{job.submission_id} in the list of {HEAD}")
    nodes = {row[0]: row[1:3] for row in NODE.findall(typed("1.2"))}
    info = module("ray_job_info", submission_id=job.submission_id)["job"]
    (head,) = [address for address, of_head in nodes.values() if of_head == "True"]
    assert nodes[info["driver_node_id"]] == (info["driver_node_ip"], "False")
    assert f"node_ip_address='{info['driver_node_ip']}'" in entry and info["driver_node_ip"] != head
    workers = ", ".join(sorted(address for address, of_head in nodes.values() if of_head == "False"))
    seen("1.2", f"{job.submission_id}: driver at {info['driver_node_ip']}; head at {head}, workers at {workers}")
    assert info["state"] == "SUCCEEDED"
    assert ("update_weights" in info["progress"]["seconds"]) == (info["workload"] != "sft")


def assert_snapshot(job: Job, code_id: str) -> None:
    lines = typed("1.7", job.submission_id).splitlines()
    assert lines[0] == f"MVP_PRECHECK_VERL_FILE=/private/common/code/verl/{code_id}/verl/__init__.py"
    assert lines[1] == f"MVP_PRECHECK_MARKER={code_id}"
    seen("1.7", f"{job.submission_id}: {' '.join(lines[:2])}")


def assert_archive(job: Job) -> None:
    """The archive has everything that docs/archive.md lists."""
    archive = job.archive
    spec = archive.read_mapping("config/job_spec.json")
    evidence = set(re.findall(r"Z-\w+-(ray_\w+)\.", typed("1.6", job.submission_id)))
    assert evidence >= {"ray_status", "ray_job_list", "ray_list_nodes", "ray_list_actors"}
    seen("1.6", f"{job.submission_id}: {', '.join(sorted(evidence))}")
    parts = ["checkpoints", "debug", "driver.log", "job_spec.json", "runtime_env.json", "submit_cmd.txt"]
    assert set(parts) <= set(typed("2.2", job.submission_id).split())
    if spec["workload"] != "ppo":
        seen({"grpo": "2.2", "sft": "2.4"}[spec["workload"]], f"{job.submission_id}: {', '.join(parts)}")
    assert spec["submission_id"] == job.submission_id
    environment = archive.read_mapping("config/runtime_env.json")["env_vars"]
    assert environment["PYTHONPATH"].startswith("/private/common/code/verl/")
    # As ray_node_env of the inventory sets it, in place of an image.
    assert environment["PYTHONPATH"].endswith(":/opt/of-the-image")
    trainer = shlex.split((archive.path / "config" / "train_cmd.txt").read_text())
    assert trainer[: trainer.index("python3")].count(f"PYTHONPATH={environment['PYTHONPATH']}") == 1
    assert trainer[trainer.index("python3") :] == ["python3", "-m", archive.plan().module, *archive.plan().overrides]
    command = (archive.path / "config" / "submit_cmd.txt").read_text()
    assert command.startswith("ray job submit ") and '{"worker_node": 1}' in command
    composed = yaml.safe_load((archive.path / "config" / "hydra" / "config.yaml").read_text())
    assert composed["trainer"]["default_local_dir"] == f"/private/jobs/{job.submission_id}/checkpoints"
    assert archive.read_mapping("config/versions.json")["ray"]
    resolved = yaml.safe_load((archive.path / "config" / "resolved.yaml").read_text())
    # The configuration composed before the submission is the one that the trainer got.
    assert resolved["trainer"] == composed["trainer"]
    index = lines_of(archive, "debug/index.jsonl")
    assert [entry for entry in index if entry.get("error")] == []
    assert all((archive.path / entry["file"]).is_file() for entry in index)
    for moment in ("submit", "start", "end"):
        names = {re.sub(rf".*?Z-{moment}-", "", entry["file"]) for entry in index if entry["moment"] == moment}
        assert names >= {"ray_status.txt", "ray_job_list.json", "ray_list_nodes.json", "ray_list_actors.json"}
    assert any(entry["file"].endswith("/stacks.txt") for entry in index)
    events = [event["event"] for event in lines_of(archive, "events.jsonl")]
    assert events[0] == "SUBMITTED" and set(events[1:3]) == {"KEPT", "RUNNING"}
    assert events[-3:] == [archive.read_status().state, "SWEPT", "CLOSED"]
    (swept,) = [event for event in lines_of(archive, "events.jsonl") if event["event"] == "SWEPT"]
    assert (swept["killed"], swept["left"]) == (0, 0)


def assert_finite_and_moving(values: list[float], steps: int) -> None:
    assert len(values) == steps
    assert all(math.isfinite(value) for value in values)
    assert len(set(values)) > 1


# JobSpecs as the action document writes them, chapters 3 and 4: what a job has anyway is there as well.
SHARED = "/private"
VERL = f"{SHARED}/common/code/verl/verl-0.9.1"
DOCUMENT: dict[str, Any] = {
    "shared_root": SHARED,
    "code_path": VERL,
    "model": f"{SHARED}/common/models/tiny-qwen2",
    "env_vars": {"PYTHONPATH": f"{VERL}:$PYTHONPATH", "RAY_ADDRESS": "auto", "HF_HOME": f"{SHARED}/hf"},
}
RAY = {
    "address": "http://127.0.0.1:8265",
    "resources": {"entrypoint_resources": {"worker_node": 1}, "entrypoint_num_cpus": 1},
}
OVERRIDES: dict[str, Any] = {
    "trainer.total_epochs": 1,
    "trainer.save_freq": 10,
    "trainer.default_local_dir": f"{SHARED}/jobs/<id>/checkpoints",
}
ANYWAY = "is what the job has anyway"


def composed(job: Job) -> Any:
    """The configuration with which the trainer ran, with its references resolved."""
    return yaml.safe_load((job.archive.path / "config" / "resolved.yaml").read_text())


def assert_fixed_batches(job: Job) -> None:
    """The size of the JobSpec is that of all that compute the policy."""
    policy = composed(job)["actor_rollout_ref"]
    assert policy["actor"]["use_dynamic_bsz"] is policy["rollout"]["log_prob_use_dynamic_bsz"] is False
    assert policy["actor"]["ppo_micro_batch_size_per_gpu"] == 16
    assert policy["rollout"]["log_prob_micro_batch_size_per_gpu"] == 16
    assert policy["ref"]["log_prob_micro_batch_size_per_gpu"] == 16


@pytest.mark.acceptance
def test_grpo_learns_and_saves_every_tenth_step(submit: Submit, tmp_path: Path) -> None:
    overrides = {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 16}
    job = submit("grpo", form="json", **DOCUMENT, ray=RAY, trainer_overrides={**OVERRIDES, **overrides})
    for key in ("trainer_overrides: algorithm.adv_estimator", "env_vars.RAY_ADDRESS", "env_vars.HF_HOME"):
        assert f"{key} {ANYWAY}" in said(job.submitted)
    job.wait()
    assert_fixed_batches(job)
    assert_off_the_head(job)
    assert_snapshot(job, "verl-0.9.1")
    assert_archive(job)
    rewards = job.values("critic/rewards/mean")
    assert_finite_and_moving(rewards, 12)
    # The reward is for short answers with digits; a random model has 0.3.
    assert sum(rewards[-4:]) > sum(rewards[:4])
    assert set(typed("1.5", job.submission_id).split()) >= {"global_step_10", "global_step_12"}
    assert job.archive.checkpoints() == [10, 12]
    seen("1.5", f"{job.submission_id}: after steps 10 and 12, the last one")
    assert f"Job {job.submission_id}: SUCCEEDED" in typed("2.1", job.submission_id)
    seen("2.1", f"{job.submission_id}: SUCCEEDED after {len(rewards)} steps")

    # It can be fetched; checkpoints only on request.
    playbook("fetch", submission_id=job.submission_id, artifacts_dir=str(tmp_path))
    fetched = tmp_path / job.submission_id
    assert (fetched / "logs" / "driver.log").read_text(errors="replace") == job.log()
    assert not (fetched / "checkpoints").exists()
    again = playbook("fetch", submission_id=job.submission_id, artifacts_dir=str(tmp_path))
    assert "changed=0" in again.stdout
    assert_exported(submit, job)


def assert_exported(submit: Submit, job: Job) -> None:
    """Its last checkpoint becomes a model, once, which the gate accepts as the model of the next job."""
    name, export = f"{job.submission_id}-step-12", {"submission_id": job.submission_id}
    would = playbook("export", arguments=["--check"], **export)
    assert f"{name} staged" in said(would.stdout)
    target = SHARED_ROOT / "common/models" / name
    assert not target.exists()
    first = playbook("export", **export)
    assert f"{name} staged job:{job.submission_id}@12 /private/common/models/{name}" in said(first.stdout)
    assert (target / "model.safetensors").stat().st_size > 100_000
    again = playbook("export", **export)
    assert f"{name} exists" in said(again.stdout) and "changed=0" in again.stdout
    assert [path.name for path in target.parent.glob(f".{name}*")] == []
    submit("grpo", arguments=["--check"], model=name)


def is_closed(name: str) -> bool:
    return name.startswith("test-") and "closed_at" in Job(name).archive.status_json()


def files(submission_id: str) -> set[tuple[str, int, int]]:
    """Every file of an archive, with its size and the time of its last change."""
    paths = [path for path in (SHARED_ROOT / "jobs" / submission_id).rglob("*") if path.is_file()]
    return {(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths}


def assert_of_its_own(job: Job, earlier: dict[str, set[tuple[str, int, int]]]) -> None:
    """The job has changed nothing of earlier ones, and another JobSpec does not get its id."""
    job_files = files(job.submission_id)
    jobspec = str(REPO / "inventories" / "dev" / "jobspecs" / "ppo.yaml")
    refused = playbook("submit", check=False, jobspec=jobspec, set=f"submission_id={job.submission_id}")
    assert f"'{job.submission_id}' is taken by another JobSpec" in said(refused.stdout)
    assert (job_files, earlier) == (files(job.submission_id), {name: files(name) for name in earlier})
    assert {job.submission_id, *earlier} <= set(typed("1.3").split())
    if before := [name for name in earlier if name.startswith("test-ppo-")]:
        seen("1.3", f"{before[-1]} as it was, then {job.submission_id}, whose id another JobSpec did not get")


def assert_critic(job: Job, steps: int) -> None:
    assert_off_the_head(job)
    assert_archive(job)
    assert_finite_and_moving(job.values("critic/vf_loss"), steps)
    assert_finite_and_moving(job.values("critic/rewards/mean"), steps)
    assert job.archive.checkpoints() == [steps]
    parts = {path.name for path in (job.archive.path / "checkpoints" / f"global_step_{steps}").iterdir()}
    assert {"actor", "critic"} <= parts


def assert_runtime_env(job: Job, settings: dict[str, Any]) -> None:
    """Ray has the parts of the runtime environment that the JobSpec has, beside those of the collection."""
    code = f"import json; print(json.dumps(dict(c.get_job_info({job.submission_id!r}).runtime_env)))"
    environment = json.loads(in_ray(code))
    assert environment["config"].items() >= settings["config"].items()
    assert environment["env_vars"].items() >= settings["env_vars"].items()
    assert environment["env_vars"]["PYTHONPATH"].startswith("/private/common/code/verl/")


@pytest.mark.acceptance
def test_ppo_trains_a_critic(submit: Submit) -> None:
    """For the second time in this cluster: test_several_jobs has a job of PPO as well. vLLM has two ranks."""
    earlier = {name: files(name) for name in typed("1.3").split() if is_closed(name)}
    # The reward is a function of a package with a relative import, and the command line changes the job.
    package = SHARED_ROOT / "user" / "code" / "graders"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("")
    (package / "share.py").write_text("def share(text):\n    return sum(map(str.isdigit, text)) / max(len(text), 1)\n")
    (package / "digits.py").write_text(
        "from .share import share\n\n\n"
        "def score(data_source, solution_str, ground_truth, extra_info=None):\n    return share(solution_str)\n"
    )
    loggers = "trainer.logger=[console,file,tensorboard,wandb,mlflow,trackio]"
    packages = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
    packages += ["--requirement", str(Path(__file__).with_name("trackers.txt"))]
    subprocess.run([*packages, "--target", str(SHARED_ROOT / "user" / "trackers")], check=True)
    changed = ("-e", f'set=["trainer.total_training_steps=4", "{loggers}", "retries=1", "tags.by=hand"]')
    # What concerns Ray is in the inventory, apart from the JobSpec. A mini-batch is larger than the batch.
    of_ray = {"env_vars": {"WANDB_MODE": "offline"}, "config": {"setup_timeout_seconds": 900}}
    changed += ("-e", json.dumps({"job_defaults": {"ray": {**RAY, "runtime_env": of_ray}}}))
    overrides = {**OVERRIDES, "trainer.total_training_steps": 90, "data.train_batch_size": 6}
    engine = {"actor_rollout_ref.rollout.name": "vllm", "actor_rollout_ref.rollout.tensor_model_parallel_size": 2}
    job = submit(
        "ppo",
        arguments=changed,
        resources={"nnodes": 1, "gpus_per_node": 2},
        **{
            **DOCUMENT,
            "env_vars": {**DOCUMENT["env_vars"], "PYTHONPATH": f"{VERL}:/private/user/trackers:$PYTHONPATH"},
        },
        reward_fn_path="graders.digits:score",
        trainer_overrides={**overrides, **engine},
    )
    assert "verl adds 2 empty samples of 128 tokens to the 6 of a step" in said(job.submitted)
    job.wait()
    # verl counts the tokens of empty samples, and leaves them out of the lengths.
    names = ("perf/total_num_tokens", "prompt_length/mean", "response_length/mean")
    counted = zip(*map(job.values, names), strict=True)
    assert {round(tokens - 6 * (prompt + response)) for tokens, prompt, response in counted} == {2 * 128}
    assert_runtime_env(job, of_ray)
    spec = job.archive.read_mapping("config/job_spec.json")
    assert (spec["retries"], spec["tags"]) == (1, {"by": "hand"})
    assert [one for one in spec["trainer_overrides"] if "total_training_steps" in one] == [
        "trainer.total_training_steps=4"
    ]
    copied = job.archive.read_mapping("config/files.json")
    assert sorted(copied["files"]) == [f"user/code/graders/{name}.py" for name in ("__init__", "digits", "share")]
    copy = job.archive.path / "config" / "files" / "user" / "code" / "graders" / "share.py"
    assert copy.read_text() == (package / "share.py").read_text()
    assert list((job.archive.path / "logs" / "tensorboard").glob("events.out.tfevents.*"))
    (run,) = (job.archive.path / "logs" / "wandb" / "wandb").glob("offline-run-*/run-*.wandb")
    assert run.stat().st_size > 1000
    (of_trackio,) = (job.archive.path / "logs" / "trackio").glob("*.db")
    for database in (job.archive.path / "logs" / "mlflow.db", of_trackio):
        with contextlib.closing(sqlite3.connect(database)) as tables:
            assert tables.execute("SELECT COUNT(DISTINCT step) FROM metrics").fetchone() == (4,)
    # The same JobSpec would run something else now.
    (package / "share.py").write_text("def share(text):\n    return 1.0\n")
    again = playbook("resubmit", submission_id=job.submission_id, arguments=("--check",))
    assert "changed: user/code/graders/share.py" in said(again.stdout)
    assert_critic(job, 4)
    assert_of_its_own(job, earlier)


@pytest.mark.acceptance
def test_sft_on_two_nodes_with_four_gpus_each(submit: Submit) -> None:
    size = {"trainer.nnodes": 2, "trainer.n_gpus_per_node": 4}
    files = {"data.train_files": f"{SHARED}/datasets/gsm8k_tiny_sft/train.parquet"}
    job = submit("sft", **DOCUMENT, ray=RAY, resources={}, trainer_overrides={**OVERRIDES, **size, **files})
    assert f"trainer_overrides: trainer.n_gpus_per_node {ANYWAY}" in said(job.submitted)
    job.wait()
    assert_off_the_head(job)
    assert_archive(job)
    losses = job.values("train/loss")
    assert_finite_and_moving(losses, 8)
    assert losses[-1] < losses[0]
    shards = {path.name for path in job.archive.path.glob("checkpoints/global_step_8/model_world_size_*")}
    assert shards == {f"model_world_size_8_rank_{rank}.pt" for rank in range(8)}
    assert f"Job {job.submission_id}: SUCCEEDED" in typed("2.3", job.submission_id)
    seen("2.3", f"{job.submission_id}: SUCCEEDED after {len(losses)} steps of 8 processes on 2 workers")


ONE_NODE: dict[str, Any] = {"resources": {"nnodes": 1, "gpus_per_node": 1}}


# LoRA, with another scale than 1.
LORA = {"model.lora_rank": 8, "model.lora_alpha": 32}
# Prints how many tensors of a merged model have an adapter, and those that are not base + scale * B @ A.
COMPARE = """
import sys, torch
from safetensors.torch import load_file
model, shard, scale = load_file(sys.argv[1]), torch.load(sys.argv[2], weights_only=False), float(sys.argv[3])
shard = {name: getattr(value, "_local_tensor", value).bfloat16() for name, value in shard.items()}
adapted, different = 0, []
for name, value in model.items():
    module, _, part = f"base_model.model.{name}".rpartition(".")
    if f"{module}.base_layer.{part}" not in shard:
        wanted = shard[f"{module}.{part}"]
    elif part == "weight":
        a, b = (shard[f"{module}.lora_{side}.default.weight"].float() for side in "AB")
        wanted = (shard[f"{module}.base_layer.weight"].float() + scale * (b @ a)).bfloat16()
        adapted += int(b.any())
    else:
        wanted = shard[f"{module}.base_layer.{part}"]
    if not torch.equal(value, wanted):
        different.append(name)
print(adapted, different)
"""


def test_sft_with_lora_stopped_resumed_and_exported(submit: Submit) -> None:
    endless = {"trainer.total_epochs": 1000, "trainer.save_freq": 2, "trainer.test_freq": -1, **LORA}
    job = submit("sft", **ONE_NODE, trainer_overrides=endless)
    deadline = time.monotonic() + 600
    tracker = job.archive.path / "checkpoints" / "latest_checkpointed_iteration.txt"
    while not tracker.exists():
        assert time.monotonic() < deadline, job.log()[-4000:]
        time.sleep(0.2)
    stopped = module("ray_job", state="stopped", submission_id=job.submission_id)
    assert stopped["changed"] and stopped["state"] == "STOPPED"
    job.wait("STOPPED")
    assert_archive(job)
    # No process of it is left on any node.
    for node in NODES:
        assert processes_of(job, node) == []
    # Stopping it again changes nothing.
    assert not module("ray_job", state="stopped", submission_id=job.submission_id)["changed"]

    saved = int(tracker.read_text())
    resumed = submit(
        "sft",
        **ONE_NODE,
        trainer_overrides={
            "trainer.total_training_steps": saved + 2,
            "trainer.total_epochs": 1000,
            **LORA,
        },
        resume_from=job.submission_id,
    )
    resumed.wait()
    assert [entry["step"] for entry in metrics_of(resumed.archive) if "train/loss" in entry["data"]] == [
        saved + 1,
        saved + 2,
    ]
    # It continued from what it had learnt, not from the beginning.
    assert resumed.values("train/loss")[0] < job.values("train/loss")[0]
    # Its model is the base model and the adapter, to the last bit.
    playbook("export", submission_id=resumed.submission_id)
    merged = f"{SHARED}/common/models/{resumed.submission_id}-step-{saved + 2}/model.safetensors"
    shard = f"{SHARED}/jobs/{resumed.submission_id}/checkpoints/global_step_{saved + 2}/model_world_size_1_rank_0.pt"
    compared = on_node(NODES[1], "python3", "-c", COMPARE, merged, shard, "4")
    # Seven layers of both blocks.
    assert compared.splitlines()[-1] == "14 []"


def stage_source_trees(directory: Path) -> list[str]:
    """Stage snapshots of source trees as codeA and codeB; what the inventory declares exists and stays."""
    trees = {"codeA": "verl-0.8.0", "codeB": "verl-0.9.1"}
    for code_id, release in trees.items():
        shutil.copytree(SHARED_ROOT / "common" / "code" / "verl" / release / "verl", directory / code_id / "verl")
    declared = [{"source": str(directory / code_id), "code_id": code_id} for code_id in trees]
    playbook("stage", staging_snapshots=declared)
    again = said(typed("1.4"))
    rows = ["model tiny-qwen2", "dataset gsm8k_tiny", "dataset gsm8k_tiny_sft", "snapshot verl-0.9.1"]
    assert all(f"{row} exists" in again for row in rows) and "changed=0" in again, again
    seen("1.4", f"exists: {', '.join(rows)}; changed=0")
    return list(trees)


@pytest.mark.acceptance
def test_two_jobs_at_the_same_time_use_their_own_verl(submit: Submit, tmp_path: Path) -> None:
    # SFT needs no data for validation.
    datasets = SHARED_ROOT / "datasets"
    (datasets / "train_only").mkdir(exist_ok=True)
    shutil.copy(datasets / "gsm8k_tiny_sft" / "train.parquet", datasets / "train_only")
    changes = {
        **ONE_NODE,
        "dataset": "train_only",
        "trainer_overrides": {"trainer.test_freq": -1, "trainer.total_training_steps": 4},
    }
    jobs = {code_id: submit("sft", **changes, code_path=code_id) for code_id in stage_source_trees(tmp_path)}
    for code_id, job in jobs.items():
        job.wait()
        assert job.values("val/loss") == []
        assert_snapshot(job, code_id)
        # Warnings of the workers name the file that they come from.
        worker_lines = [line for line in job.log().splitlines() if "TrainingWorker" in line.partition("/")[0]]
        imported = {
            code for line in worker_lines for code in re.findall(r"/private/common/code/verl/([^/]+)/verl/", line)
        }
        assert imported == {code_id}
    spans = [(job.archive.read_status().started_at, job.archive.read_status().ended_at) for job in jobs.values()]
    assert max(start for start, _ in spans) < min(end for _, end in spans), "they did not run at the same time"
    # Staging compiles; jobs write nothing.
    bytecode = (SHARED_ROOT / "common" / "code").rglob("__pycache__")
    assert [path for path in bytecode if path.stat().st_mtime > max(start for start, _ in spans)] == []
