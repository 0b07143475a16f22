"""Jobs that end with success although something is wrong."""

from __future__ import annotations

import ast
import contextlib
import functools
import html
import json
import re
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError

import pytest
from archive_files import lines_of
from debuggers import node_of_the_breakpoint, ray_debug, terminal
from system import HEAD, NODES, SHARED_ROOT, Submit, on_node, playbook, said, until

RAISES = """
import zlib

answers = []


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    answers.append(solution_str)
    if len(answers) == 1:
        breakpoint()
    if zlib.crc32(solution_str.encode()) % 8 == 0:
        raise ValueError("the judge cannot read this answer")
    return len(set(solution_str)) / max(1, len(solution_str))
"""


@pytest.mark.usefixtures("submit")
def test_workers_reduce_together() -> None:
    shown = playbook("preflight", preflight_tier="deep").stdout
    assert "Report:" in shown and "no all-reduce" not in shown


def read(address: str) -> str:
    with contextlib.suppress(HTTPError), urllib.request.urlopen(address, timeout=10) as page:  # noqa: S310 - of the head
        return html.unescape(page.read().decode())
    return ""


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


def test_a_reward_that_raises_and_prompts_that_are_cut_are_told(submit: Submit) -> None:
    """And Ray's own debugger stops the reward for a person at first."""
    (SHARED_ROOT / "user" / "code" / "sometimes.py").write_text(RAISES)
    followed = functools.partial(
        submit,
        "grpo",
        arguments=["-e", "job_wait=true"],
        debugger="legacy",
        reward_fn_path="sometimes.py",
        trainer_overrides={
            "trainer.total_training_steps": 3,
            "trainer.save_freq": -1,
            "data": {"train_batch_size": 8, "max_prompt_length": 16, "max_response_length": 32},
        },
    )
    with ThreadPoolExecutor(1) as follower:
        following = follower.submit(followed)
        answer = answer_at_the_breakpoint("sometimes.py")
        job = following.result()
    # After what was typed, the value as Python writes it.
    assert isinstance(ast.literal_eval(answer.strip().splitlines()[-1]), str), answer
    status = job.wait()
    warnings = {warning["kind"]: warning for warning in status["warnings"]}
    assert {"reward_raises", "prompts_cut"} <= set(warnings)
    raised, cut = warnings["reward_raises"], warnings["prompts_cut"]
    assert raised["of"] == cut["of"] == cut["count"] == 3 * 8 * 4
    assert 0 < raised["count"] < raised["of"] == 96
    assert "ValueError: the judge cannot read this answer (/private/user/code/sometimes.py, line 12)" in raised["text"]
    assert "96 of 96 prompts were cut from the left to 16 tokens" in cut["text"]

    shown = said(job.submitted)
    assert "starting workers" in shown or "loading weights" in shown or "first rollout" in shown
    assert f"WARNING {raised['text'][:30]}" in shown
    assert f"SUCCEEDED with {len(warnings)} warnings" in shown
    shown = said(playbook("status", submission_id=job.submission_id).stdout)
    assert f"SUCCEEDED with {len(warnings)} warnings" in shown and raised["text"][:30] in shown
    assert list((job.archive.path / "logs" / "tensorboard").glob("events.out.tfevents.*"))
    # The phases of its start that lasted at least one poll, and its page from the head.
    assert {"driver", "first rollout"} <= set(status["attempts"][0]["phases"])
    assert "first rollout" in shown
    address = re.findall(r"http://\S+/index\.html", playbook("pages").stdout)[0]
    page = address.replace("index.html", f"{job.submission_id}/report.html")
    until(lambda: raised["text"][:30] in read(page), "the page of the job tells the warning")
    events = [event for event in lines_of(job.archive, "events.jsonl") if event["event"] == "WARNING"]
    assert {event["about"] for event in events} >= set(warnings), json.dumps(events)
