"""The overrides of a job, composed with the configuration of every known release of verl, in the image.

Downloads a wheel of 1 MB for each to .cache/wheels, once.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import reduce
from typing import Any

import pytest
from numbers_of_verl import expected, letters
from system import REPO

from argus.checks.request import Configuration
from argus.common.findings import errors
from argus.gate import composition
from argus.gate.config import ACTOR, JobConfig
from argus.gate.gate import with_queue
from argus.gate.numbers import config_findings, used_values
from argus.io.hydra import override_key
from argus.jobspec import spec_checks
from argus.jobspec.capacity import Cluster
from argus.jobspec.parse import parse_jobspec
from argus.jobspec.plan import Job, plan_job
from argus.jobspec.spec import JobSpec
from argus.jobspec.verl_releases import (
    REMOVE,
    REWARD_FUNCTION,
    RL_UNREAD,
    RL_UNTIL_0_9,
    SFT_UNREAD,
    Profile,
    profile_of,
)

IMAGE = "argus-verl-cpu:0.1.0"
WHEELS = REPO / ".cache" / "wheels"
VERSIONS = ("0.8.0", "0.9.0", "0.9.1")
NEWER = ("0.10.0.dev0", "grpo", "cuda")
CUDA = Cluster(accelerator="cuda", workers=2, gpus_per_node=8, cpus_per_node=128)
CPU = Cluster(accelerator="cpu", workers=2, gpus_per_node=4, cpus_per_node=48)
ALL = ("ppo", "grpo", "eval", "sft")
CASES = [
    *((version, workload, "cuda") for version in ("0.8.0", "0.9.1") for workload in ALL),
    *(("0.9.0", workload, "cuda") for workload in ("ppo", "sft")),
    *(("0.9.1", workload, "cpu") for workload in ("ppo", "grpo", "sft")),
]
# One job of each trainer is also composed as in a real run; each number of its configuration is judged.
REAL = [(version, workload, "cuda") for version in ("0.8.0", "0.9.1") for workload in ("ppo", "sft")]
# Runs in the container: composes all jobs with `composed`, and a job of each trainer with @hydra.main as verl does.
IN_THE_IMAGE = """
import dataclasses, json, pathlib, shutil, subprocess, sys, types, zipfile

asked = json.load(sys.stdin)
for version in asked["versions"]:
    with zipfile.ZipFile(next(pathlib.Path("/wheels").glob(f"verl-{version}-*.whl"))) as wheel:
        wheel.extractall(f"/tmp/verl-{version}")
# A newer release, whose trainer has no TransferQueue and one setting less.
newer = shutil.copytree("/tmp/verl-0.9.1", f"/tmp/verl-{asked['newer']}")
settings = pathlib.Path(newer, "verl/trainer/config/ppo_trainer.yaml")
lines = settings.read_text().splitlines(keepends=True)
settings.write_text("".join(one for one in lines if "transfer_queue@" not in one and "max_critic_ckpt" not in one))
# Dataclasses look up their module by its name.
composition = sys.modules["composition"] = types.ModuleType("composition")
exec(compile(asked["source"].replace("inspect.getsource(sys.modules[__name__])", "''"), "composition", "exec"),
     composition.__dict__)
REAL = '''
import json, sys
import hydra
from omegaconf import OmegaConf
@hydra.main(config_path=sys.argv.pop(1), config_name=sys.argv.pop(1), version_base=None)
def main(config):
    print("REAL", json.dumps(OmegaConf.to_container(config, resolve=True)))
main()
'''
def run(job):
    code_path = f"/tmp/verl-{job['version']}"
    answer = dataclasses.asdict(composition.compose_here(code_path, job["module"], job["pairs"]))
    if job["real"]:
        name = "sft_trainer_engine" if "sft" in job["module"] else "ppo_trainer"
        overrides = [override for _key, override in job["pairs"]]
        command = [sys.executable, "-c", REAL, f"{code_path}/verl/trainer/config", name, *overrides]
        done = subprocess.run(command, capture_output=True, text=True)
        answer["real"] = json.loads(done.stdout.rpartition("REAL ")[2] or "null")
    return answer
print(json.dumps([run(job) for job in asked["jobs"]]))
"""


def download(version: str) -> None:
    if not list(WHEELS.glob(f"verl-{version}-*.whl")):
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
        pip += ["--only-binary=:all:", "--ignore-requires-python", "--dest", str(WHEELS), f"verl=={version}"]
        subprocess.run(pip, check=True)


def profile(version: str) -> Profile:
    result = profile_of(version)
    assert result
    return result


def planned(version: str, workload: str, accelerator: str) -> Job:
    jobspec: dict[str, Any] = {"workload": workload, "code_path": f"verl-{version}", "model": "m", "dataset": "d"}
    if workload != "sft":
        jobspec["reward_fn_path"] = "r.py:score"
        jobspec["trainer_overrides"] = {f"{ACTOR}.ppo_mini_batch_size": 256, "data.train_batch_size": 1024}
    if accelerator == "cpu":
        size = "data.micro_batch_size_per_gpu" if workload == "sft" else f"{ACTOR}.ppo_micro_batch_size_per_gpu"
        jobspec["trainer_overrides"] = {**jobspec.get("trainer_overrides", {}), size: 4}
    findings, spec = parse_jobspec(jobspec)
    assert findings == []
    assert spec
    assert errors(spec_checks.version_findings(spec, profile(version))) == []
    cluster = CPU if accelerator == "cpu" else CUDA
    return plan_job(spec, cluster, f"verl-{version}", "job-1", profile(version))


@pytest.fixture(scope="module")
def answers() -> dict[tuple[str, str, str], dict[str, Any]]:
    WHEELS.mkdir(parents=True, exist_ok=True)
    for version in VERSIONS:
        download(version)
    jobs = []
    for case in (*CASES, NEWER):
        job = planned(*case)
        # The archive does not exist. The directory that Hydra writes to is not part of the configuration.
        overrides = [
            override.replace("hydra.run.dir=/private", "hydra.run.dir=/tmp/private") for override in job.plan.overrides
        ]
        pairs = [(override_key(override), override) for override in overrides]
        jobs.append({"version": case[0], "module": job.plan.module, "pairs": pairs, "real": case in REAL})
    docker = ["docker", "run", "--rm", "--interactive", "--workdir", "/tmp", "--volume", f"{WHEELS}:/wheels:ro", IMAGE]
    done = subprocess.run(
        [*docker, "python", "-c", IN_THE_IMAGE],
        input=json.dumps({"versions": VERSIONS, "newer": NEWER[0], "source": composition.SOURCE, "jobs": jobs}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(zip((*CASES, NEWER), json.loads(done.stdout), strict=True))


def at(config: Any, key: str) -> Any:
    return reduce(lambda node, part: node[part], key.split("."), config)


def has(config: Any, key: str) -> bool:
    try:
        at(config, key)
    except (KeyError, TypeError):
        return False
    return True


@pytest.mark.parametrize("page", ["bin/argus_command.py", "docs/submit.md"])
def test_overrides_in_examples_are_settings_of_the_job(answers: dict[Any, dict[str, Any]], page: str) -> None:
    config = answers["0.9.1", "grpo", "cuda"]["config"]
    lines = [line for line in (REPO / page).read_text().splitlines() if "argus submit" in line]
    keys = [key for line in lines for key in re.findall(r" (\w[\w.]+)=", line)]
    assert keys
    assert [key for key in keys if key not in JobSpec.paths().values() and not has(config, key)] == []


def test_a_newer_release_gets_what_it_has(answers: dict[Any, dict[str, Any]]) -> None:
    composed = answers[NEWER]
    missing = {refusal["key"] for refusal in composed["errors"]}
    assert composed["config"] and missing == {"trainer.max_critic_ckpt_to_keep"}
    job = planned(*NEWER)
    assert job.plan.transfer_queue
    assert not with_queue(job, Configuration(composed["config"])).plan.transfer_queue


@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_a_job_is_composed_as_planned(case: tuple[str, str, str], answers: dict[Any, dict[str, Any]]) -> None:
    version, workload, accelerator = case
    answer = answers[case]
    config = answer["config"]
    assert (answer["errors"], answer["unread"]) == ([], [])
    assert config == answer.get("real", config)
    assert config_findings(config, workload, 2, 4 if accelerator == "cpu" else 8, version) == []
    if workload != "sft":
        reward = at(config, REWARD_FUNCTION)
        assert (reward["path"], reward["name"]) == ("/private/user/code/r.py", "score")
    if accelerator == "cpu":
        # The size of batches takes effect.
        part = config["data"] if workload == "sft" else config["actor_rollout_ref"]["actor"]
        assert part["use_dynamic_bsz"] is False


# verl 0.9 reads another key instead, and a warning says so.
UNREAD_BY_0_9 = "critic.ppo_max_token_len_per_gpu"


@pytest.mark.parametrize("case", REAL, ids=" ".join)
def test_every_number_is_judged(case: tuple[str, str, str], answers: dict[Any, dict[str, Any]]) -> None:
    version, workload, _dummy = case
    config = answers[case]["config"]
    job = JobConfig(config, workload, 2, 8, profile(version).release)
    numbers = [key for key, value in used_values(job) if not isinstance(value, str)]
    assert len(numbers) > 20
    said = {key: letters(config, key, workload, 8, version) for key in numbers if key != UNREAD_BY_0_9}
    assert said == {key: expected(workload, key) for key in said}


# Set with "+", or only in the configuration of another engine.
NOT_IN_THE_CONFIG = ("reward.reward_kwargs",)
# Keys that are still in the configuration, but that no code reads: verl silently ignores them.
IGNORED = (
    "actor_rollout_ref.actor.ppo_micro_batch_size",
    "actor_rollout_ref.ref.log_prob_micro_batch_size",
    "actor_rollout_ref.rollout.log_prob_micro_batch_size",
    "critic.ppo_micro_batch_size",
    "critic.ulysses_sequence_parallel_size",
    "custom_reward_function",
    "data.balance_dp_token",
    "reward_model",
    "sandbox_fusion",
    "transfer_queue.enable",
)


@pytest.mark.parametrize("case", [case for case in CASES if case[2] == "cuda"], ids=" ".join)
def test_names_that_are_not_read_and_their_replacements(
    case: tuple[str, str, str], answers: dict[Any, dict[str, Any]]
) -> None:
    version, workload, _dummy = case
    config = answers[case]["config"]
    for name, new in (SFT_UNREAD if workload == "sft" else RL_UNREAD | RL_UNTIL_0_9).items():
        if profile(version).unread_hint(workload, name):
            assert name.startswith(IGNORED) or not has(config, name), name
            key = new.partition("=")[0]
            assert new.startswith((REMOVE, *NOT_IN_THE_CONFIG)) or has(config, key), key
