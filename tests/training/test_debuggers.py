"""Ray's debugger in a job that fails, with a program in place of a person; test_results.py has the older one."""

from __future__ import annotations

from debuggers import Debugger, waiting
from system import Submit, module


def test_a_failed_job_has_its_cause(submit: Submit) -> None:
    # No check can find this: transformers fails when it loads the model.
    unknown = {"++model.override_config.attn_implementation": "no_such_attention"}
    job = submit("sft", resources={"nnodes": 1, "gpus_per_node": 1}, debugger="post_mortem", trainer_overrides=unknown)
    with Debugger(*waiting()) as debugger:
        assert debugger.stopped["reason"] == "exception"
        frames = debugger.frames()
        of_verl = "/private/common/code/verl/verl-0.9.1/verl/"
        assert any(frame["source"].get("path", "").startswith(of_verl) for frame in frames), frames
        values = [value for frame in frames[:8] for value in debugger.variables(frame).values()]
        assert "'no_such_attention'" in values, values
        assert job.archive.read_status().state == "RUNNING"
        debugger.go_on()
    status = job.wait("FAILED")
    assert status["exit_code"] == 1
    assert "no_such_attention" in status["reason"]
    assert status["attempts"][0]["kind"] == status["failure"]["kind"]
    assert list(job.archive.path.glob("debug/*-end-ray_status.txt"))
    info = module("ray_job_info", submission_id=job.submission_id, tail=5)["job"]
    assert info["state"] == "FAILED" and info["log"]
