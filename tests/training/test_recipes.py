"""Experiments beside the three that the README begins with: other estimators, modes of the trainer, evaluations."""

from __future__ import annotations

from system import Job, Submit, playbook, said

VALIDATED = "val-core/openai/gsm8k/acc/mean@1"


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
