"""Experiments beside the three that the README begins with: other estimators, and evaluations."""

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
