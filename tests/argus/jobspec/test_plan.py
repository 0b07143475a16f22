from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from jobs import CPU, CUDA, PROFILES, planned, settings

from argus.archive.plan import Plan
from argus.archive.program import Program
from argus.io.schema import json_text, parse
from argus.jobspec.plan import FORWARDED_BY_VERL
from argus.jobspec.verl_releases import Profile

# Where workers find the program.
HOOK = Program.of_this_process().python_path


def test_the_environment() -> None:
    # Ray refuses two values for one key, and verl puts some into its runtime_env itself.
    variables = {"NCCL_DEBUG": "WARN", "WANDB_DIR": "/w", "PYTHONDONTWRITEBYTECODE": 0, "OURS": 1}
    job = planned(env_vars={**variables, **dict.fromkeys(FORWARDED_BY_VERL, "1")})
    assert job.plan.driver_env == dict.fromkeys(FORWARDED_BY_VERL, "1")
    assert job.runtime_env == {
        "env_vars": {
            "HF_HUB_OFFLINE": "1",
            "PYTHONUNBUFFERED": "1",
            "HYDRA_FULL_ERROR": "1",
            "TENSORBOARD_DIR": "/private/jobs/job-1/logs/tensorboard",
            "MLFLOW_TRACKING_URI": "sqlite:////private/jobs/job-1/logs/mlflow.db",
            "TRACKIO_DIR": "/private/jobs/job-1/logs/trackio",
            # Only some may be replaced.
            "WANDB_DIR": "/w",
            "NCCL_DEBUG": "WARN",
            "OURS": "1",
            "PYTHONPATH": f"/private/common/code/verl/verl-0.9.1:{HOOK}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "HF_HOME": "/private/hf",
            "VERL_FILE_LOGGER_PATH": "/private/jobs/job-1/logs/metrics-1.jsonl",
            "ARGUS_VERL_JOB": "job-1",
            "ARGUS_VERL_ARCHIVE": "/private/jobs/job-1",
            "RAY_ADDRESS": "auto",
            "RAY_JOB_STOP_WAIT_TIME_S": "30",
        },
        "worker_process_setup_hook": "argus.hooks.isolation.enter_worker",
    }


def test_the_code_of_users_is_on_the_path_of_a_job_that_imports_its_reward_by_name() -> None:
    job = planned(reward_fn_path="graders.math:score", env_vars={"PYTHONPATH": "/private/x"})
    path = f"/private/common/code/verl/verl-0.9.1:/private/user/code:/private/x:{HOOK}"
    assert job.runtime_env["env_vars"]["PYTHONPATH"] == path
    assert settings(job)["reward.custom_reward_function.path"] == "'pkg://graders.math'"
    file = planned(reward_fn_path="graders/math.py:score")
    assert "/private/user/code" not in file.runtime_env["env_vars"]["PYTHONPATH"].split(":")


@pytest.mark.parametrize(
    ("path", "image", "added"),
    [("$PYTHONPATH", "", ""), ("${PYTHONPATH}", "/opt/a::/opt/b:", ":/opt/a:/opt/b"), ("/private/x", ":", "")],
)
def test_the_path_of_the_image_comes_last(path: str, image: str, added: str) -> None:
    """A path may be written as for a shell; an empty entry would be the current directory."""
    snapshot = "/private/common/code/verl/verl-0.9.1"
    job = planned(env_vars={"PYTHONPATH": f"{snapshot}:/private/x:{path}"}).with_python_path(image)
    assert job.runtime_env["env_vars"]["PYTHONPATH"] == f"{snapshot}:/private/x:{HOOK}{added}"


def test_the_runtime_environment_of_an_inventory() -> None:
    inventory = {"env_vars": {"A": 1, "B": 2}, "config": {"setup_timeout_seconds": 60}, "nsight": "default"}
    runtime_env = planned(ray={"runtime_env": inventory}, env_vars={"B": 3}, secrets=["HF_TOKEN"]).runtime_env
    assert sorted(runtime_env) == ["config", "env_vars", "nsight", "worker_process_setup_hook"]
    assert (runtime_env["config"], runtime_env["nsight"]) == ({"setup_timeout_seconds": 60}, "default")
    variables = runtime_env["env_vars"]
    assert (variables["A"], variables["B"], variables["RAY_ADDRESS"]) == ("1", "3", "auto")


def test_the_command_of_the_trainer() -> None:
    job = planned(secrets=["HF_TOKEN"], env_vars={"NCCL_ALGO": "Ring", "A": "b c"}, trainer_overrides={"x": "it's"})
    line = job.train_command()
    assert line.endswith("\n") and line.count("\n") == 1
    words = shlex.split(line)
    end = words.index("python3")
    assert words[0] == "env"
    assert words[end:] == ["python3", "-m", "verl.trainer.main_ppo", *job.plan.overrides]
    variables = dict(word.split("=", 1) for word in words[1:end])
    # It includes variables of the driver alone, but not those by which its processes would count as the job's.
    config = json.loads(variables.pop("RAY_JOB_CONFIG_JSON_ENV_VAR"))
    expected = {**job.runtime_env["env_vars"], "NCCL_ALGO": "Ring"}
    for name in ("ARGUS_VERL_JOB", "ARGUS_VERL_ARCHIVE", "VERL_FILE_LOGGER_PATH", "RAY_JOB_STOP_WAIT_TIME_S"):
        del expected[name]
    assert variables == expected
    assert variables["A"] == "b c" and "HF_TOKEN" not in variables
    # Ray's workers get the same, without the hook for secrets. verl passes the rest on itself.
    del expected["NCCL_ALGO"]
    assert config == {"runtime_env": {"env_vars": expected}}
    profiled = shlex.split(planned(ray={"runtime_env": {"nsight": "default"}}).train_command())
    (text,) = [word.partition("=")[2] for word in profiled if word.startswith("RAY_JOB_CONFIG_JSON_ENV_VAR=")]
    assert json.loads(text)["runtime_env"]["nsight"] == "default"


def test_a_job_under_torchrun() -> None:
    size = {"nnodes": 2, "gpus_per_node": 4}
    job = planned(CUDA, workload="sft", launcher="torchrun", resources=size, env_vars={"NCCL_ALGO": "Ring"})
    assert (job.plan.launcher, job.plan.module) == ("torchrun", "verl.trainer.sft_trainer")
    # Each rank trains on the device, as there is no driver of verl's.
    assert settings(job)["trainer.device"] == "cuda"
    assert settings(planned(CPU, workload="sft", launcher="torchrun"))["trainer.device"] == "cpu"
    variables = job.runtime_env["env_vars"]
    # Ranks have what verl's driver would pass on, and lines that several of them write are not left out.
    assert variables["NCCL_ALGO"] == "Ring"
    assert job.plan.driver_env == {"RAY_DEDUP_LOGS": "0"}
    assert variables["VERL_SFT_LOGGING_LEVEL"] == "INFO"
    quiet = planned(CUDA, workload="sft", launcher="torchrun", env_vars={"VERL_SFT_LOGGING_LEVEL": "ERROR"})
    assert quiet.runtime_env["env_vars"]["VERL_SFT_LOGGING_LEVEL"] == "ERROR"
    assert "VERL_SFT_LOGGING_LEVEL" not in planned(CUDA, workload="sft").runtime_env["env_vars"]
    words = shlex.split(job.train_command())
    flags = ["--nnodes=2", "--nproc-per-node=4", "--node-rank=0", "--master-addr=MASTER_ADDRESS", "--master-port=29500"]
    assert words[words.index("python3") :] == [
        *("python3", "-m", "torch.distributed.run", *flags, "--max-restarts=0"),
        *("-m", "verl.trainer.sft_trainer", *job.plan.overrides),
    ]


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.version)
@pytest.mark.parametrize("workload", ["sft", "grpo", "ppo"])
def test_what_a_release_needs(profile: Profile, workload: str) -> None:
    job = planned(CUDA, profile, workload=workload)
    uses_queue = workload != "sft" and profile.release >= (0, 9, 0)
    assert job.plan.transfer_queue is uses_queue
    assert profile.cpu_backend(workload) is (workload == "sft" or uses_queue)
    assert ("worker_process_setup_hook" in job.runtime_env) is uses_queue
    assert job.runtime_env["env_vars"]["PYTHONPATH"].endswith(HOOK) is uses_queue
    # Before 0.9, a driver of SFT on "cpu" would wait for ever for a resource of that name.
    is_old = workload == "sft" and profile.release < (0, 9, 0)
    assert job.plan.driver_env == ({"CUDA_VISIBLE_DEVICES": "0"} if is_old else {})
    assert settings(job).get("trainer.device") == {"sft": "cuda" if is_old else "cpu"}.get(workload)


@pytest.mark.parametrize(
    ("debugger", "switch"), [("post_mortem", {"RAY_DEBUG_POST_MORTEM": "1"}), ("legacy", {"RAY_DEBUG": "legacy"})]
)
def test_rays_debugger(debugger: str, switch: dict[str, str]) -> None:
    env = planned(debugger=debugger).runtime_env["env_vars"]
    assert {name: value for name, value in env.items() if name.startswith("RAY_DEBUG")} == switch
    assert not [name for name in planned().runtime_env["env_vars"] if name.startswith("RAY_DEBUG")]


def test_the_plan() -> None:
    same: dict[str, Any] = {"retries": 3, "priority": 10, "depends_on": "sft-1", "on_stall": "stop"}
    durations = {"deadline": "2d", "wait_for_resources": "2h", "queue_patience": "30m", "start_timeout": "5m"}
    size = {"nnodes": 2, "gpus_per_node": 4}
    further = {"stall_timeout": "0", "secrets": ["HF_TOKEN"], "tags": {"team": "a"}}
    job = planned(CUDA, workload="sft", resources=size, **same, **durations, **further)
    assert job.plan == Plan(
        code_path="/private/common/code/verl/verl-0.9.1",
        code_id="verl-0.9.1",
        module="verl.trainer.sft_trainer_ray",
        overrides=job.plan.overrides,
        driver_env={},
        address="http://127.0.0.1:8265",
        entrypoint="python3 /opt/argus/current launch run /private/jobs/job-1",
        entrypoint_resources={"worker_node": 1},
        entrypoint_num_cpus=1,
        workload="sft",
        cpus_per_node=40,
        secrets=("HF_TOKEN",),
        deadline=172_800.0,
        wait_for_resources=7200.0,
        tags=("team=a",),
        queue_patience=1800.0,
        start_timeout=300,
        stall_timeout=None,
        transfer_queue=False,
        **size,
        **same,
    )
    assert parse(Plan, json.loads(json_text(job.plan))) == job.plan
    assert (job.submission_id, job.archive, job.tags) == ("job-1", "/private/jobs/job-1", {"team": "a"})


def test_the_submit_command() -> None:
    """Ray gives the entrypoint to a shell."""
    job = planned(ray={"address": "http://127.0.0.1:9000"}, shared_root="/my root")
    line = job.submit_command()
    assert line.endswith("\n")
    assert line.count("\n") == 1
    words = shlex.split(line)
    end = words.index("--")
    assert words[:4] == ["ray", "job", "submit", "--no-wait"]
    assert dict(zip(words[4:end:2], words[5:end:2], strict=True)) == {
        "--address": "http://127.0.0.1:9000",
        "--submission-id": "job-1",
        "--entrypoint-num-cpus": "1",
        "--entrypoint-resources": '{"worker_node": 1}',
        "--runtime-env": "/my root/jobs/job-1/config/runtime_env.json",
    }
    # The first attempt.
    assert words[end + 1 :] == ["python3", "/opt/argus/current", "launch", "run", "/my root/jobs/job-1", "1"]
    assert words[end + 1 : -1] == shlex.split(job.plan.entrypoint)
