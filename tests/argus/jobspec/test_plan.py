from __future__ import annotations

import json
import shlex

import pytest
from jobs import CPU, CUDA, NEWEST, PROFILES, jobspec, planned, settings

from argus.archive.plan import Plan
from argus.archive.program import Program
from argus.io.schema import json_text, parse
from argus.jobspec.plan import plan_job
from argus.jobspec.verl_releases import Profile

# Where workers find the program.
HOOK = Program.of_this_process().python_path


def test_the_environment() -> None:
    job = planned(env_vars={"NCCL_DEBUG": "WARN", "OURS": 1})
    assert job.runtime_env == {
        "env_vars": {
            "HF_HUB_OFFLINE": "1",
            "PYTHONUNBUFFERED": "1",
            "HYDRA_FULL_ERROR": "1",
            "TENSORBOARD_DIR": "/private/jobs/job-1/logs/tensorboard",
            "MLFLOW_TRACKING_URI": "sqlite:////private/jobs/job-1/logs/mlflow.db",
            "TRACKIO_DIR": "/private/jobs/job-1/logs/trackio",
            "WANDB_DIR": "/private/jobs/job-1/logs/wandb",
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


def test_the_jobspec_replaces_only_some_variables() -> None:
    asked = {"HF_HUB_OFFLINE": 0, "PYTHONDONTWRITEBYTECODE": 0, "TENSORBOARD_DIR": "/t", "WANDB_DIR": "/w"}
    env = planned(env_vars=asked).runtime_env["env_vars"]
    assert (env["HF_HUB_OFFLINE"], env["PYTHONDONTWRITEBYTECODE"]) == ("0", "1")
    assert (env["TENSORBOARD_DIR"], env["WANDB_DIR"]) == ("/t", "/w")


def test_the_code_of_users_is_on_the_path_of_a_job_that_imports_its_reward_by_name() -> None:
    job = planned(reward_fn_path="graders.math:score", env_vars={"PYTHONPATH": "/private/x"}, secrets=["HF_TOKEN"])
    assert job.runtime_env["env_vars"]["PYTHONPATH"].split(":") == [
        "/private/common/code/verl/verl-0.9.1",
        "/private/user/code",
        "/private/x",
        *HOOK.split(":"),
    ]
    assert settings(job)["reward.custom_reward_function.path"] == "'pkg://graders.math'"
    assert settings(job)["reward.custom_reward_function.name"] == "score"
    file = planned(reward_fn_path="graders/math.py:score")
    assert "/private/user/code" not in file.runtime_env["env_vars"]["PYTHONPATH"].split(":")


@pytest.mark.parametrize(
    ("asked", "image", "added"),
    [("$PYTHONPATH", "", ""), ("${PYTHONPATH}", "/opt/a::/opt/b:", ":/opt/a:/opt/b"), ("/private/x", ":", "")],
)
def test_the_path_of_the_image_comes_last(asked: str, image: str, added: str) -> None:
    """A path may be written as for a shell; an empty entry would be the current directory."""
    snapshot = "/private/common/code/verl/verl-0.9.1"
    job = planned(env_vars={"PYTHONPATH": f"{snapshot}:/private/x:{asked}"}).with_python_path(image)
    assert job.runtime_env["env_vars"]["PYTHONPATH"] == f"{snapshot}:/private/x:{HOOK}{added}"


def test_the_runtime_environment_of_an_inventory() -> None:
    asked = {"env_vars": {"A": 1, "B": 2}, "config": {"setup_timeout_seconds": 60}, "nsight": "default"}
    runtime_env = planned(ray={"runtime_env": asked}, env_vars={"B": 3}, secrets=["HF_TOKEN"]).runtime_env
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
    given = dict(word.split("=", 1) for word in words[1:end])
    # Variables of the driver alone too; not those by which its processes would count as the job's.
    config = json.loads(given.pop("RAY_JOB_CONFIG_JSON_ENV_VAR"))
    expected = {**job.runtime_env["env_vars"], "NCCL_ALGO": "Ring"}
    for name in ("ARGUS_VERL_JOB", "ARGUS_VERL_ARCHIVE", "VERL_FILE_LOGGER_PATH", "RAY_JOB_STOP_WAIT_TIME_S"):
        del expected[name]
    assert given == expected
    assert given["A"] == "b c" and "HF_TOKEN" not in given
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
    asked = ["--nnodes=2", "--nproc-per-node=4", "--node-rank=0", "--master-addr=MASTER_ADDRESS", "--master-port=29500"]
    assert words[words.index("python3") :] == [
        *("python3", "-m", "torch.distributed.run", *asked, "--max-restarts=0"),
        *("-m", "verl.trainer.sft_trainer", *job.plan.overrides),
    ]


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.version)
@pytest.mark.parametrize("workload", ["sft", "grpo", "ppo"])
def test_a_job_with_a_transfer_queue_has_the_hook_as_well(profile: Profile, workload: str) -> None:
    runtime_env = planned(CUDA, profile, workload=workload).runtime_env
    uses_queue = workload != "sft" and profile.release >= (0, 9, 0)
    assert planned(CUDA, profile, workload=workload).plan.transfer_queue is uses_queue
    assert ("worker_process_setup_hook" in runtime_env) is uses_queue
    assert runtime_env["env_vars"]["PYTHONPATH"].endswith(HOOK) is uses_queue


@pytest.mark.parametrize(
    ("debugger", "switch"), [("post_mortem", {"RAY_DEBUG_POST_MORTEM": "1"}), ("legacy", {"RAY_DEBUG": "legacy"})]
)
def test_rays_debugger(debugger: str, switch: dict[str, str]) -> None:
    env = planned(debugger=debugger).runtime_env["env_vars"]
    assert {name: value for name, value in env.items() if name.startswith("RAY_DEBUG")} == switch
    assert not [name for name in planned().runtime_env["env_vars"] if name.startswith("RAY_DEBUG")]


def test_the_plan() -> None:
    job = planned(
        CUDA,
        workload="sft",
        resources={"nnodes": 2, "gpus_per_node": 4},
        secrets=["HF_TOKEN"],
        retries=3,
        deadline="2d",
        wait_for_resources="2h",
        priority=10,
        queue_patience="30m",
        depends_on="sft-1",
        start_timeout="5m",
        stall_timeout="0",
        on_stall="stop",
        tags={"team": "a"},
    )
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
        nnodes=2,
        gpus_per_node=4,
        cpus_per_node=40,
        secrets=("HF_TOKEN",),
        retries=3,
        on_stall="stop",
        deadline=172_800.0,
        wait_for_resources=7200.0,
        tags=("team=a",),
        priority=10,
        queue_patience=1800.0,
        start_timeout=300,
        stall_timeout=None,
        transfer_queue=False,
        depends_on="sft-1",
        resumed_from=None,
        resumed_from_step=None,
    )
    assert parse(Plan, json.loads(json_text(job.plan))) == job.plan
    assert (job.submission_id, job.archive) == ("job-1", "/private/jobs/job-1")
    assert job.tags == {"team": "a"}


# The variables that verl's main_ppo puts into its runtime_env itself.
FORWARDED = (
    "VERL_FULL_DETERMINISM",
    "VLLM_BATCH_INVARIANT",
    "VERL_RL_INSIGHT_ENABLE",
    "PYTHONHASHSEED",
    "CUBLAS_WORKSPACE_CONFIG",
    "FLASH_ATTENTION_DETERMINISTIC",
    "NCCL_DETERMINISTIC",
    "NCCL_ALGO",
)


@pytest.mark.parametrize("name", FORWARDED)
def test_variables_that_verl_forwards_are_not_in_the_runtime_env(name: str) -> None:
    """Ray refuses two values for one key: "Failed to merge the Job's runtime env"."""
    spec = jobspec(env_vars={name: "1"})
    job = plan_job(spec, CPU, "x", "job-1", NEWEST)
    assert name not in job.runtime_env["env_vars"]
    assert job.plan.driver_env == {name: "1"}


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


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.version)
def test_the_driver_of_an_old_sft_sees_a_gpu(profile: Profile) -> None:
    driver_env = planned(CUDA, profile, workload="sft", env_vars={"NCCL_ALGO": "Ring"}).plan.driver_env
    gpu = {"CUDA_VISIBLE_DEVICES": "0"} if profile.release < (0, 9, 0) else {}
    assert driver_env == {**gpu, "NCCL_ALGO": "Ring"}
    assert planned(CUDA, profile).plan.driver_env == {}
