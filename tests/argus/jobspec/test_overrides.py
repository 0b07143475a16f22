from __future__ import annotations

import pytest
from jobs import CPU, CUDA, NEWEST, PROFILES, jobspec, parse_override, planned, settings

from argus.jobspec.capacity import Cluster
from argus.jobspec.overrides import sample_overrides
from argus.jobspec.plan import plan_job
from argus.jobspec.verl_releases import Profile


@pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.version)
@pytest.mark.parametrize("workload", ["sft", "grpo", "ppo"])
def test_a_job_sets_only_names_that_the_release_reads(profile: Profile, workload: str) -> None:
    job = planned(CUDA, profile, workload=workload, **({} if workload == "sft" else {"reward_fn_path": "r.py"}))
    assert [key for key in settings(job) if profile.unread_hint(workload, key)] == []


def test_any_path_and_id_reach_the_trainer_unchanged() -> None:
    odd = "/private/it's, {a} model"
    spec = jobspec(model=odd, dataset=odd, reward_fn_path=f"{odd}/r.py:f", workload="ppo", submission_id="17")
    overrides = plan_job(spec, CPU, "x", "17", NEWEST).plan.overrides
    values = {parsed.key_or_group: parsed.value() for parsed in map(parse_override, overrides)}
    assert values["actor_rollout_ref.model.path"] == values["critic.model.path"] == odd
    assert values["data.train_files"] == f"{odd}/train.parquet"
    reward = "reward.custom_reward_function"
    assert (values[f"{reward}.path"], values[f"{reward}.name"]) == (f"{odd}/r.py", "f")
    assert values["trainer.experiment_name"] == "17"


def test_the_jobspec_replaces_defaults() -> None:
    job = planned(
        resources={"nnodes": 1, "gpus_per_node": 2},
        trainer_overrides={"trainer": {"save_freq": 2, "logger": ["console"]}, "+new": 1},
    )
    values = settings(job)
    assert values["trainer.nnodes"] == "1"
    assert values["trainer.n_gpus_per_node"] == "2"
    assert values["trainer.save_freq"] == "2"
    assert values["trainer.logger"] == "[console]"
    assert job.plan.overrides[-3:] == ("trainer.save_freq=2", "trainer.logger=[console]", "+new=1")


def test_a_job_that_only_validates() -> None:
    # verl reads val_only after a first validation alone.
    only = settings(planned(CUDA, trainer_overrides=["trainer.val_only=True"]))
    assert only["trainer.val_only"] == "True" and "trainer.val_before_train" not in only
    evaluation = settings(planned(CUDA, workload="eval"))
    assert evaluation["trainer.val_only"] == "True" and "trainer.val_before_train" not in evaluation
    assert evaluation["data.train_files"] == evaluation["data.val_files"] == "/private/datasets/gsm8k_tiny/val.parquet"


# All overrides of three jobs. Each has the first ones.
OF_EVERY_JOB = """
    trainer.nnodes={0.workers}
    trainer.n_gpus_per_node={0.gpus_per_node}
    trainer.default_local_dir=/private/jobs/job-1/checkpoints
    trainer.project_name={workload}
    trainer.experiment_name=job-1
    trainer.logger=[console,file]
    trainer.total_epochs=1
    trainer.save_freq=10
    hydra.run.dir=/private/jobs/job-1/config/hydra
    hydra.output_subdir=.
    data.train_files=/private/datasets/gsm8k_tiny/train.parquet
    data.val_files=/private/datasets/gsm8k_tiny/val.parquet
"""
OF_A_JOB = {
    ("ppo", CPU): """
        actor_rollout_ref.model.path=/private/common/models/tiny-qwen2
        trainer.val_before_train=False
        trainer.max_actor_ckpt_to_keep=3
        trainer.max_critic_ckpt_to_keep=3
        ++transfer_queue.backend.SimpleStorage.required_node_resource=worker_node
        algorithm.adv_estimator=gae
        critic.model.path=/private/common/models/tiny-qwen2
        trainer.validation_data_dir=/private/jobs/job-1/samples/.validation
        trainer.rollout_data_dir=/private/jobs/job-1/samples/.rollouts
        actor_rollout_ref.actor.use_dynamic_bsz=True
        trainer.device=cpu
        data.dataloader_num_workers=0
        actor_rollout_ref.model.use_remove_padding=False
        ++actor_rollout_ref.model.override_config.attn_implementation=eager
        actor_rollout_ref.actor.strategy=fsdp2
        actor_rollout_ref.actor.use_torch_compile=False
        actor_rollout_ref.actor.fsdp_config.use_torch_compile=False
        actor_rollout_ref.ref.fsdp_config.use_torch_compile=False
        actor_rollout_ref.rollout.tensor_model_parallel_size=1
        actor_rollout_ref.rollout.agent.num_workers=1
        reward.num_workers=1
        transfer_queue.backend.SimpleStorage.num_data_storage_units=1
        actor_rollout_ref.rollout.name=hf_cpu
        actor_rollout_ref.model.lora.merge=True
        critic.strategy=fsdp2
        critic.model.use_remove_padding=False
        ++critic.model.override_config.attn_implementation=eager
        critic.fsdp.use_torch_compile=False
    """,
    ("sft", CPU): """
        model.path=/private/common/models/tiny-qwen2
        trainer.device=cpu
        trainer.max_ckpt_to_keep=3
        data.num_workers=0
        model.use_remove_padding=False
        ++model.override_config.attn_implementation=eager
        engine.strategy=fsdp2
        engine.use_torch_compile=False
    """,
    ("grpo", CUDA): """
        actor_rollout_ref.model.path=/private/common/models/tiny-qwen2
        trainer.val_before_train=False
        trainer.max_actor_ckpt_to_keep=3
        trainer.max_critic_ckpt_to_keep=3
        ++transfer_queue.backend.SimpleStorage.required_node_resource=worker_node
        algorithm.adv_estimator=grpo
        actor_rollout_ref.rollout.n=5
        actor_rollout_ref.actor.use_kl_loss=True
        trainer.validation_data_dir=/private/jobs/job-1/samples/.validation
        trainer.rollout_data_dir=/private/jobs/job-1/samples/.rollouts
        actor_rollout_ref.actor.use_dynamic_bsz=True
        actor_rollout_ref.rollout.name=vllm
    """,
}


@pytest.mark.parametrize(("workload", "cluster"), OF_A_JOB, ids=["ppo on cpu", "sft on cpu", "grpo on cuda"])
def test_all_overrides_of_a_job(workload: str, cluster: Cluster) -> None:
    """The tests in tests/snapshots compose them with the configurations of verl."""
    expected = OF_EVERY_JOB.format(cluster, workload=workload) + OF_A_JOB[workload, cluster]
    assert list(planned(cluster, workload=workload).plan.overrides) == expected.split()


@pytest.mark.parametrize(
    ("overrides", "is_sampled"),
    [
        ([], True),
        (["data.max_response_length=1024"], True),
        (["data.max_response_length=8192"], False),
        (["data.max_response_length=8192", "++data.train_batch_size='64'"], True),
        (["data.max_response_length=${x}"], False),
        ([f"data.train_batch_size={'9' * 5000}"], False),
    ],
)
def test_a_step_with_many_tokens_is_not_decoded_for_samples(overrides: list[str], is_sampled: bool) -> None:
    keys = [override.partition("=")[0] for override in sample_overrides(overrides, "/private/jobs/job-1")]
    assert keys == ["trainer.validation_data_dir", *["trainer.rollout_data_dir"][: int(is_sampled)]]


UNITS = "transfer_queue.backend.SimpleStorage.num_data_storage_units"


@pytest.mark.parametrize(
    ("cpus", "workers", "nnodes", "units"),
    [
        # 24 for 8 GPUs, 2 for the driver and the controller, and 2 on each of 4 workers.
        (28, 4, 4, None),
        (27, 4, 4, "4"),
        (26, 4, 4, "1"),
        # The driver and the controller may be on a worker that the job does not use.
        (26, 4, 3, None),
        (25, 4, 3, "4"),
        (28, 2, 1, None),
        (27, 2, 1, "6"),
    ],
)
def test_as_many_storage_units_as_fit(cpus: int, workers: int, nnodes: int, units: str | None) -> None:
    """verl's own number is 8. Each is pinned to a worker, and waits for a CPU there."""
    cluster = Cluster("cuda", workers, 8, cpus)
    assert settings(planned(cluster, resources={"nnodes": nnodes})).get(UNITS) == units
    assert UNITS not in settings(planned(cluster, PROFILES[0], resources={"nnodes": nnodes}))
    assert UNITS not in settings(planned(cluster, workload="sft", resources={"nnodes": nnodes}))
    job = planned(cluster, resources={"nnodes": nnodes}, trainer_overrides={UNITS: 2})
    assert settings(job)[UNITS] == "2"
