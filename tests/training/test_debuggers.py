"""Ray's two debuggers in a job, with programs in place of a person."""

from __future__ import annotations

import ast
import json

from debuggers import Debugger, node_of_the_breakpoint, ray_debug, terminal, waiting
from system import HEAD, NODES, SHARED_ROOT, Submit, module, on_node

STOPS = """
answers = []


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    answers.append(solution_str)
    if len(answers) == 1:
        breakpoint()
    return float(len(solution_str))
"""


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


def answer_at_the_breakpoint(file: str) -> str:
    """What a person who debugs the job reads in the variable solution_str, before they let the job go on."""
    waits = node_of_the_breakpoint(file)
    listed = json.loads(on_node(HEAD, "ray", "list", "nodes", "--format", "json"))
    address = next(node["node_ip"] for node in listed if node["node_id"] == waits)
    node = next(node for node in NODES if address in on_node(node, "hostname", "-I").split())
    with terminal(*ray_debug(node)) as debugger:
        assert file in debugger.until("press enter to refresh:")
        debugger.type("0")
        debugger.until("(Pdb)")
        debugger.type("p solution_str")
        answer = debugger.until("(Pdb)")
        debugger.type("continue")
        debugger.until("press enter to refresh:")
    return answer


def test_ray_debug_reads_a_variable_at_a_breakpoint(submit: Submit) -> None:
    (SHARED_ROOT / "user" / "code" / "stops.py").write_text(STOPS)
    job = submit(
        "grpo",
        debugger="legacy",
        reward_fn_path="stops.py",
        trainer_overrides={"trainer.total_training_steps": 1, "trainer.save_freq": -1, "data.train_batch_size": 8},
    )
    answer = answer_at_the_breakpoint("stops.py")
    # After what was typed, the value as Python writes it.
    assert isinstance(ast.literal_eval(answer.strip().splitlines()[-1]), str), answer
    job.wait()
