"""Experiments beside the three that the README begins with: other estimators, modes of the trainer, evaluations."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from system import SHARED_ROOT, Job, Submit, playbook, said

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


def test_an_evaluation_waits_for_a_training_with_another_estimator(submit: Submit) -> None:
    changes = {"algorithm.adv_estimator": "rloo", "trainer.total_training_steps": 2, "trainer.save_freq": 2}
    training = submit("grpo", trainer_overrides=changes)
    origin = training.submission_id
    of_model, of_checkpoint = submit("eval"), submit("eval", depends_on=origin, resume_from=origin)
    assert of_checkpoint.archive.read_status().reason == f"waits for {origin} to succeed"
    assert training.wait()["state"] == "SUCCEEDED"
    assert len(training.values("critic/rewards/mean")) == 2
    assert_validated(of_model, "")
    assert_validated(of_checkpoint, f"Resumed: from {origin}, global_step_2")


ONE = {"nnodes": 1, "gpus_per_node": 1}
MODES = {
    "colocate_async": ({"resources": ONE}, {}),
    "separate_async": (
        {"resources": {**ONE, "pools": {"rollout": ONE}}},
        {"trainer.v1.separate_async.parameter_sync_step": 2, "actor_rollout_ref.actor.ppo_mini_batch_size": 4},
    ),
}


def test_asynchronous_grpo(submit: Submit) -> None:
    """At once, so that one starts while the other trains."""
    lengths = {"trainer.total_training_steps": 3, "trainer.save_freq": 3}
    jobs = {
        mode: submit("grpo", **keys, trainer_overrides={**lengths, **overrides, "trainer.v1.trainer_mode": mode})
        for mode, (keys, overrides) in MODES.items()
    }
    for mode, job in jobs.items():
        assert job.wait()["state"] == "SUCCEEDED"
        assert len(job.values("critic/rewards/mean")) == 3
        assert job.archive.plan().gpus == (2 if mode == "separate_async" else 1)


TOOL = "/private/user/code/own/add.py"
RECIPES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # A program of users' code with a configuration of its own, and an agent that calls a tool after each answer.
    "own": (
        {"module": "own.main"},
        {
            "own.note": "hello",
            "data": {"max_prompt_length": 256, "max_response_length": 160, "return_raw_chat": True},
            "actor_rollout_ref.rollout.agent.default_agent_loop": "tool_agent",
            "actor_rollout_ref.rollout.multi_turn": {
                **{"enable": True, "format": "always", "max_assistant_turns": 3},
                "function_tool_path": TOOL,
            },
        },
    ),
    "dapo": (
        {},
        {
            "algorithm.filter_groups": {"enable": True, "metric": "reward", "max_num_gen_batches": 4},
            "actor_rollout_ref.actor": {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28},
            "reward.reward_manager.name": "dapo",
            "+reward.reward_kwargs.overlong_buffer_cfg": {
                "enable": True,
                "len": 16,
                "penalty_factor": 1.0,
                "log": True,
            },
            "+reward.reward_kwargs.max_resp_len": 32,
        },
    ),
    "lora": ({}, {"actor_rollout_ref.model": {"lora_rank": 8, "lora_alpha": 16, "lora.merge": True}}),
}


def test_recipes(submit: Submit) -> None:
    lengths = {"trainer.total_training_steps": 2, "trainer.save_freq": 2}
    jobs = {
        name: submit("grpo", **keys, trainer_overrides={**lengths, **overrides})
        for name, (keys, overrides) in RECIPES.items()
    }
    for job in jobs.values():
        assert job.wait()["state"] == "SUCCEEDED"
        assert len(job.values("critic/rewards/mean")) == 2
    own = jobs["own"]
    assert "The note is hello" in own.log()
    # Three answers, and the answers of the tool to them.
    assert own.values("num_turns/max") == [6.0, 6.0]
    copied = {str(path.relative_to(own.archive.path / "config/files")) for path in own.archive.path.rglob("*.py")}
    assert copied == {"user/code/own/main.py", "user/code/own/add.py"} | {"user/code/digit_share.py"}


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
