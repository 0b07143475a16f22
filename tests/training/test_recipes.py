"""Experiments beside the three that the README begins with: other estimators, modes of the trainer, evaluations."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from system import HEAD, SHARED_ROOT, Job, Submit, on_node, playbook, said, until

VALIDATED = "val-core/openai/gsm8k/acc/mean@1"
OWN = Path(__file__).with_name("own")


@pytest.fixture(scope="module", autouse=True)
def stuck(submit: Submit) -> Job:
    """A job that waits for an actor which no node can hold, beside the tests of this file."""
    shutil.copytree(OWN, SHARED_ROOT / "user/code/own", dirs_exist_ok=True)
    return submit("grpo", module="own.main", trainer_overrides={"own.stuck": True})


def assert_validated(job: Job, step: str) -> None:
    status = job.wait()
    assert status["state"] == "SUCCEEDED"
    assert 0 <= job.values(VALIDATED)[0] <= 1
    assert not list((job.archive.path / "checkpoints").glob("global_step_*"))
    shown = said(playbook("status", submission_id=job.submission_id).stdout)
    assert f"Validation: {VALIDATED}" in shown and step in shown


ONE = {"nnodes": 1, "gpus_per_node": 1}
# verl's own rollout, with vLLM's CPU backend.
VLLM = {"actor_rollout_ref.rollout.name": "vllm"}
TOOL = "/private/user/code/own/add.py"
# A program of users' code with a configuration of its own, another estimator, and an agent that calls a tool after each
# answer.
AGENT = {
    **{"own.note": "hello", "algorithm.adv_estimator": "rloo", "trainer.v1.trainer_mode": "colocate_async"},
    **{"trainer.total_training_steps": 2, "trainer.save_freq": 2},
    "data": {"max_prompt_length": 256, "max_response_length": 160, "return_raw_chat": True},
    "actor_rollout_ref.rollout.agent.default_agent_loop": "tool_agent",
    "actor_rollout_ref.rollout.prometheus.enable": True,
    "actor_rollout_ref.rollout.multi_turn": {
        **{"enable": True, "format": "always", "max_assistant_turns": 3, "function_tool_path": TOOL}
    },
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
    training = submit("grpo", module="own.main", trainer_overrides={**VLLM, **AGENT})
    origin = training.submission_id
    of_model = submit("eval")
    of_checkpoint = submit("eval", depends_on=origin, resume_from=origin, trainer_overrides=VLLM)
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
# DAPO's settings, for an adapter that the engine loads.
DAPO = {
    **{"trainer.total_training_steps": 2, "trainer.save_freq": 2},
    "algorithm.filter_groups": {"enable": True, "metric": "reward", "max_num_gen_batches": 4},
    "actor_rollout_ref.actor": {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28},
    "reward.reward_manager.name": "dapo",
    "+reward.reward_kwargs.overlong_buffer_cfg": {"enable": True, "len": 16, "penalty_factor": 1.0, "log": True},
    "+reward.reward_kwargs.max_resp_len": 32,
    "actor_rollout_ref.model": {"lora_rank": 8, "lora_alpha": 16},
}


def test_separate_rollouts_and_dapo_with_lora(submit: Submit) -> None:
    """At once, so that one starts while the other trains."""
    pools = {"resources": {**ONE, "pools": {"rollout": ONE}}}
    separate = submit("grpo", **pools, trainer_overrides={**VLLM, **SEPARATE})
    dapo = submit("grpo", trainer_overrides={**VLLM, **DAPO})
    for job, steps, gpus in ((separate, 3, 2), (dapo, 2, 1)):
        assert job.wait()["state"] == "SUCCEEDED"
        assert len(job.values("critic/rewards/mean")) == steps
        assert job.archive.plan().gpus == gpus


ASKS = """
import os, time, urllib.request
print("GPUs", os.environ["CUDA_VISIBLE_DEVICES"])
while True:
    with open("answer", "w") as file:
        file.write(str(urllib.request.urlopen(os.environ["JUDGE_URL"]).status))
    if os.environ["ONCE"] == "1":
        break
    time.sleep(1)
"""


def test_a_server_and_the_commands_that_use_it(submit: Submit) -> None:
    server = ["python3", "-m", "http.server", "8123"]
    judge = submit("command", command=server, ready={"port": 8123}, before=["sleep 3", "echo yes > begun"])
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
    assert (directory, user) == (f"/private/jobs/{always.submission_id}/output", "61000") and address.endswith(":8123")
    shown = said(playbook("status", submission_id=judge.submission_id).stdout)
    assert re.search(r"RUNNING .*Address: +http://[\d.]+:8123 ", shown)
    playbook("stop", submission_id=judge.submission_id)
    assert judge.wait("STOPPED")["state"] == "STOPPED"
    assert always.wait("FAILED")["failure"]["kind"] == "dependency"
    assert (always.archive.path / "output/kept").exists()


def test_a_start_that_cannot_succeed(stuck: Job) -> None:
    """Minutes after its start, rather than after start_timeout."""
    failure = stuck.wait("FAILED")["failure"]
    assert failure["kind"] == "no_resources" and "actor Large needs" in failure["reason"]
