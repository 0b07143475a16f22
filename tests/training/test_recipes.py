"""Experiments beside the three that the README begins with: those of docs/recipes.md, and more."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from system import HEAD, REPO, SHARED_ROOT, Job, Submit, on_node, playbook, said, until

from argus.io.hydra import merge_overrides, override_list

VALIDATED = "val-core/openai/gsm8k/acc/mean@1"
OWN = Path(__file__).with_name("own")


PAGE = {
    section.partition("\n")[0]: re.findall(r"```(yaml|python)\n(.*?)```", section, re.DOTALL)
    for section in (REPO / "docs/recipes.md").read_text().split("\n## ")[1:]
}
ONE = {"nnodes": 1, "gpus_per_node": 1}


def blocks(title: str) -> list[dict[str, Any]]:
    """The YAML of a section of the page."""
    return [yaml.safe_load(text) for language, text in PAGE[title] if language == "yaml"]


def recipe(*titles: str, **changes: Any) -> dict[str, Any]:
    """The JobSpecs that end sections of the page as one, for the tiny model, with sizes that it learns from."""
    spec: dict[str, Any] = {}
    overrides: list[str] = []
    for title in titles:
        spec |= blocks(title)[-1]
        overrides = merge_overrides(overrides, override_list(spec["trainer_overrides"]))
    tiny = yaml.safe_load((REPO / "inventories/dev/jobspecs" / f"{spec['workload']}.yaml").read_text())
    for changed in (tiny, changes):
        overrides = merge_overrides(overrides, override_list(changed["trainer_overrides"]))
    return {
        **spec,
        "model": "tiny-qwen2",
        "dataset": "gsm8k_tiny",
        "resources": ONE,
        **changes,
        "trainer_overrides": overrides,
    }


@pytest.fixture(scope="module", autouse=True)
def stuck(submit: Submit) -> Job:
    """A job that waits for an actor which no node can hold, beside the tests of this file."""
    code = SHARED_ROOT / "user/code"
    for text in (text for section in PAGE.values() for _language, text in section if text.startswith("# user/code/")):
        file = SHARED_ROOT / text.partition("\n")[0].removeprefix("# ")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    shutil.copy(OWN / "stuck.py", code / "own")
    with (code / "own/add.py").open("a") as file:
        file.write((OWN / "always.py").read_text())
    return submit("grpo", module="own.stuck")


def assert_validated(job: Job, step: str) -> None:
    status = job.wait()
    assert status["state"] == "SUCCEEDED"
    assert 0 <= job.values(VALIDATED)[0] <= 1
    assert not list((job.archive.path / "checkpoints").glob("global_step_*"))
    shown = said(playbook("status", submission_id=job.submission_id).stdout)
    assert f"Validation: {VALIDATED}" in shown and step in shown


# verl's own rollout, with vLLM's CPU backend.
VLLM = {"actor_rollout_ref.rollout.name": "vllm"}
# An agent that calls a tool after each answer, with another estimator, in a program of users' code.
AGENT = {
    **{"trainer.v1.trainer_mode": "colocate_async", "actor_rollout_ref.rollout.prometheus.enable": True},
    **{"trainer.total_training_steps": 2, "trainer.save_freq": 2},
    "data": {"max_prompt_length": 256, "max_response_length": 160},
    # The model never asks for one.
    "actor_rollout_ref.rollout.multi_turn.format": "always",
}


# On the head, what Prometheus would read.
SCRAPE = """
import contextlib, json, os, urllib.request
def read(address):
    return urllib.request.urlopen(f"http://{address}", timeout=5).read().decode()
with contextlib.suppress(OSError):
    for group in json.loads(read(f"127.0.0.1:{int(os.environ['DASHBOARD_METRIC_PORT']) + 3}/engines")):
        print(group["labels"], *(read(f"{target}/metrics") for target in group["targets"]))
"""


def counts(job: Job) -> bool:
    """Whether Prometheus finds the engines of a job, and their metrics."""
    scraped = on_node(HEAD, "python3", "-c", SCRAPE)
    return job.submission_id in scraped and "vllm:generation_tokens_total{" in scraped


def test_an_evaluation_waits_for_an_agent_that_is_trained(submit: Submit) -> None:
    titles = ("RLOO and other estimators", "An agent with a tool", "A trainer of your own")
    training = submit("grpo", **recipe(*titles, trainer_overrides={**VLLM, **AGENT}))
    origin = training.submission_id
    of_model = submit("eval")
    of_job = {"depends_on": origin, "resume_from": origin, "reward_fn_path": "digit_share.py"}
    of_checkpoint = submit("eval", **recipe("An evaluation", **of_job, trainer_overrides=VLLM))
    assert of_checkpoint.archive.read_status().reason == f"waits for {origin} to succeed"
    until(lambda: counts(training), "Prometheus finds its engines", 300)
    assert training.wait()["state"] == "SUCCEEDED"
    assert len(training.values("critic/rewards/mean")) == 2
    assert "The note is hello" in training.log()
    # Three answers, and the answers of the tool to them.
    assert training.values("num_turns/max") == [6.0, 6.0]
    copied = {path.relative_to(training.archive.path / "config/files") for path in training.archive.path.rglob("*.py")}
    assert {*map(str, copied)} == {"user/code/own/main.py", "user/code/own/add.py", "user/code/digit_share.py"}
    assert_validated(of_model, "")
    assert_validated(of_checkpoint, f"Resumed: from {origin}, global_step_2")


SEPARATE = {
    **{"trainer.total_training_steps": 3, "trainer.save_freq": 3, "trainer.v1.trainer_mode": "separate_async"},
    **{"trainer.v1.separate_async.parameter_sync_step": 2, "actor_rollout_ref.actor.ppo_mini_batch_size": 4},
}
DAPO = {
    **{"trainer.total_training_steps": 2, "trainer.save_freq": 2},
    **{"+reward.reward_kwargs.overlong_buffer_cfg.len": 16, "+reward.reward_kwargs.max_resp_len": 32},
}


def test_separate_rollouts_and_dapo_with_lora(submit: Submit) -> None:
    """At once, so that one starts while the other trains."""
    pools = {"resources": {**ONE, "pools": {"rollout": ONE}}}
    separate = submit("grpo", **pools, trainer_overrides={**VLLM, **SEPARATE})
    two_nodes = {"nnodes": 2, "gpus_per_node": 1}
    dapo = submit("grpo", **recipe("DAPO", "LoRA", resources=two_nodes, trainer_overrides={**VLLM, **DAPO}))
    for job, steps in ((separate, 3), (dapo, 2)):
        assert job.wait()["state"] == "SUCCEEDED"
        assert len(job.values("critic/rewards/mean")) == steps
        assert job.archive.plan().gpus == 2


ASKS = """
import os, time, urllib.request
print("GPUs", os.environ["CUDA_VISIBLE_DEVICES"])
while True:
    with open("answer", "w") as file:
        file.write(str(urllib.request.urlopen(os.environ["JUDGE_URL"] + "/health").status))
    if os.environ["ONCE"] == "1":
        break
    time.sleep(1)
"""


def stage_fork(directory: Path) -> None:
    """As the page does, from a directory rather than a repository."""
    (item,) = blocks("A fork of verl")[0]["staging_snapshots"]
    shutil.copytree(SHARED_ROOT / "common/code/verl/verl-0.9.1/verl", directory / "fork/verl")
    trainer = directory / "fork/verl/trainer/main_ppo.py"
    trainer.chmod(0o644)
    trainer.write_text(f"{trainer.read_text()}\nprint('This is a fork')\n")
    nothing: dict[str, Any] = {"staging_models": [], "staging_datasets": [], "staging_user_code": []}
    playbook("stage", **nothing, staging_snapshots=[{**item, "source": str(directory / "fork")}])


def test_a_judge_of_a_fork_and_of_commands(submit: Submit, tmp_path: Path) -> None:
    server = blocks("A judge")[0]
    command = [part.replace("Qwen2.5-7B-Instruct", "tiny-qwen2") for part in server["command"]]
    # Without it, the server takes nearly all of the machine's memory.
    server["command"] = [*command, f"--kv-cache-memory-bytes={2**28}"]
    judge = submit("command", **server, before=["sleep 3", "echo yes > begun"])
    stage_fork(tmp_path)
    of_page = recipe("A judge", "A fork of verl", trainer_overrides={"trainer.total_training_steps": 2})
    graded = submit("grpo", **{**of_page, "env_from": {"JUDGE_URL": judge.submission_id}})
    uses = {"command": ["python3", "-c", ASKS], "env_from": {"JUDGE_URL": judge.submission_id}}
    once, always = (
        submit("command", **uses, env_vars={"ONCE": number}, resources={"gpus": 1}, after=["cp answer kept"])
        for number in (1, 0)
    )
    assert once.wait()["state"] == "SUCCEEDED"
    assert (once.archive.path / "output/kept").read_text() == "200"
    assert once.archive.plan().gpus == 1 and re.search(r"^GPUs \d$", once.log(), re.MULTILINE)
    shown = playbook("shell", submission_id=always.submission_id).stdout
    (opening,) = re.findall(r"docker exec -it .*", shown)
    inside = shlex.split(opening.replace(" -it ", " -i "))
    done = subprocess.run(inside, input="pwd; id -u; echo $JUDGE_URL", capture_output=True, text=True, check=True)
    directory, user, address = done.stdout.split()
    assert (directory, user) == (f"/private/jobs/{always.submission_id}/output", "61000") and address.endswith(":8000")
    shown = said(playbook("status", submission_id=judge.submission_id).stdout)
    assert re.search(r"RUNNING .*Address: +http://[\d.]+:8000 ", shown)
    assert graded.wait()["state"] == "SUCCEEDED"
    # A random model says yes to nothing.
    assert graded.values("critic/rewards/mean") == [0.0, 0.0]
    assert judge.log().count('"POST /v1/chat/completions HTTP/1.1" 200') >= 2 * 8 * 4
    assert "This is a fork" in graded.log()
    playbook("stop", submission_id=judge.submission_id)
    assert judge.wait("STOPPED")["state"] == "STOPPED"
    assert always.wait("FAILED")["failure"]["kind"] == "dependency"
    assert (always.archive.path / "output/kept").exists()


def test_a_start_that_cannot_succeed(stuck: Job) -> None:
    """Minutes after its start, rather than after start_timeout."""
    failure = stuck.wait("FAILED")["failure"]
    assert failure["kind"] == "no_resources" and "actor Large needs" in failure["reason"]
