"""The gate on a real cluster: problems that only the head and the workers can see are reported before submission."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from system import HEAD, NODES, REPO, SHARED_ROOT, Submit, on_node, playbook, said

WORKER = NODES[1]
ONE_GPU: dict[str, Any] = {"nnodes": 1, "gpus_per_node": 1}


def reward(name: str, text: str) -> Callable[[], None]:
    def write() -> None:
        (SHARED_ROOT / "user" / "code" / name).write_text(text)

    return write


def truncated_model() -> None:
    """A model with truncated weights, as after an interrupted copy."""
    target = SHARED_ROOT / "common" / "models" / "truncated"
    if not target.exists():
        shutil.copytree(SHARED_ROOT / "common" / "models" / "tiny-qwen2", target)
        weights = target / "model.safetensors"
        weights.chmod(0o644)
        weights.write_bytes(weights.read_bytes()[:-1000])


FRAGILE = "def compute_score(solution_str, **kwargs):\n    return float(solution_str.split()[0])\n"

# A mistake of each kind: the JobSpec, the changes, the preparation, and parts of the output.
REFUSED: list[tuple[str, dict[str, Any], list[Callable[[], None]], list[str]]] = [
    (
        "grpo",
        {"code_path": "verl-0.0.0", "model": "no-model"},
        [],
        ["code_path there is no snapshot", "model /private/common/models/no-model/config.json does not exist"],
    ),
    (
        "grpo",
        {
            "model": "truncated",
            "dataset": "gsm8k_tiny_sft",
            "reward_fn_path": "needs.py",
            "trainer_overrides": {
                "actor_rollout_ref.actor.checkpoint.async_save": True,
                "reward_model.enable": True,
            },
        },
        [truncated_model, reward("needs.py", "import no_such_module\n\n\ndef compute_score(**kwargs):\n    pass\n")],
        [
            "it is truncated",
            "is a dataset for sft (messages), not for ppo and grpo",
            "imports no_such_module, which the workers do not have",
            "is not read by verl 0.9.1",
            "verl would record no checkpoint as finished",
        ],
    ),
    (
        "grpo",
        {"reward_fn_path": "broken.py", "trainer_overrides": {"data.train_batch_size": 4096}},
        [reward("broken.py", "def compute_score(:\n    return 0.0\n")],
        ["SyntaxError: invalid syntax", "the job would run no step"],
    ),
    (
        "grpo",
        {
            "reward_fn_path": "fragile.py",
            "check_reward": 4,
            "trainer_overrides": {"data.max_prompt_length": 8, "data.filter_overlong_prompts": True},
        },
        [reward("fragile.py", FRAGILE)],
        [
            "are longer (the longest has",
            "line 2: compute_score, called for row 0 with an empty text as the answer, raises IndexError: list index "
            "out of range, and in 3 more of 8 calls",
        ],
    ),
    (
        "grpo",
        {
            "ray": {"runtime_env": {"pip": ["debugpy"]}},
            "trainer_overrides": {"custom_reward_function.path": "/x.py"},
        },
        [],
        # verl 0.9 silently ignores the old name of the reward function.
        ["add the packages to the image", "silently ignores"],
    ),
    # Misspelt keys cost minutes on a GPU cluster, and verl would wait forever for an SFT that does not fit.
    (
        "sft",
        {
            "resources": {"nnodes": 3},
            "resume_from": "no-such-job",
            "ray": {"resources": {"entrypoint_resources": {"worker_node": 101}}},
            "trainer_overrides": {
                "trainer.save_frq": 5,
                "trainer.test_freq": 0,
                "optim.lr": -0.001,
                "data.train_files": "/home/ann/train.parquet",
            },
        },
        [],
        [
            "asks for 3 workers, but 2 are alive",
            "no worker has all of 101 worker_node, 1 CPU for the driver; the largest amounts are 100 worker_node, ",
            "did you mean trainer.save_freq?",
            "trainer.test_freq",
            "optim.lr is -0.001, but must be 0 or more: torch refuses",
            "on the machines)",
            "there is no job no-such-job",
        ],
    ),
]


def jobs_of_ray() -> str:
    count = "print(len([job for job in C().list_jobs() if job.submission_id]))"
    return on_node(HEAD, "python3", "-c", f"from ray.job_submission import JobSubmissionClient as C; {count}")


@pytest.mark.parametrize(("name", "changes", "prepare", "expected"), REFUSED, ids=[row[3][0] for row in REFUSED])
def test_refused_with_all_mistakes_at_once(
    submit: Submit, name: str, changes: dict[str, Any], prepare: list[Callable[[], None]], expected: list[str]
) -> None:
    for step in prepare:
        step()
    job = submit(name, check=False, **{"resources": ONE_GPU, **changes})
    output = said(job.submitted)
    assert [piece for piece in expected if piece not in output] == [], job.submitted
    assert "nothing was changed" in job.submitted
    assert not job.archive.path.exists()


def test_check_mode_only_runs_the_gate(submit: Submit, tmp_path: Path) -> None:
    before = jobs_of_ray()
    spec = yaml.safe_load((REPO / "inventories" / "dev" / "jobspecs" / "sft.yaml").read_text())
    spec["submission_id"] = f"test-check-{time.time_ns()}"
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    done = playbook("submit", arguments=["--check", "--diff"], jobspec=str(tmp_path / "spec.yaml"))
    assert "+trainer.nnodes=2" in done.stdout
    assert not (SHARED_ROOT / "jobs" / spec["submission_id"]).exists()
    assert jobs_of_ray() == before


# What verl's own tokenizer of the model makes of all prompts of a dataset.
LENGTHS = """
import json
import pandas
from transformers import AutoTokenizer
tokenizer = AutoTokenizer.from_pretrained("/private/common/models/tiny-qwen2")
rows = pandas.read_parquet("/private/datasets/gsm8k_tiny/train.parquet")["prompt"]
texts = [tokenizer.apply_chat_template(list(row), add_generation_prompt=True, tokenize=False) for row in rows]
lengths = [len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
print(json.dumps([len(lengths), sum(length > 16 for length in lengths), max(lengths)]))
"""


def test_prompts_are_measured_and_the_reward_is_called(submit: Submit) -> None:
    rows, longer, longest = json.loads(on_node(WORKER, "python3", "-c", LENGTHS).splitlines()[-1])
    assert longer
    changes: dict[str, Any] = {"trainer_overrides": {"data.max_prompt_length": 16}, "check_reward": 4}
    job = submit("grpo", arguments=["--check"], resources=ONE_GPU, **changes)
    output = said(job.submitted)
    # A machine that is busy has no time to count exactly.
    if "the longest has about" not in output:
        assert f"is 16, but {longer} of {rows} prompts in train are longer (the longest has {longest} tokens)" in output
    assert "prompts in train are longer (the longest has" in output
    assert "verl cuts off their beginnings, whatever data.truncation is" in output
    assert f"Prompts: {rows} of {rows} in train measured, the longest has" in output
    assert "Reward: 8 calls of " in output
    assert "for the ground truth" in output
    assert not job.archive.path.exists()
