from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from checked_job import CODE, request, version, write

from argus.checks import reward
from argus.checks.common import Facts
from argus.checks.reward import call_of, reward_findings

HEAD = "def compute_score(data_source, solution_str, ground_truth, extra_info):\n"
ROWS = [
    {
        "data_source": "mine",
        "prompt": [{"role": "user", "content": "?"}],
        "reward_model": {"style": "rule", "ground_truth": str(number)},
        "extra_info": {"index": number},
    }
    for number in range(6)
]


def tried(root: Path, text: str, rows: int = 2, **changes: Any) -> tuple[list[tuple[str, str]], list[str]]:
    (root / "user/code/r.py").write_text(text)
    write(root, ROWS)
    facts = Facts()
    findings = reward_findings(request(root, trial_rows=rows, **changes), facts)
    assert {finding.key for finding in findings} <= {"reward_fn_path"}
    where = f"{root}/user/code/r.py"
    return [(finding.severity, finding.what.removeprefix(where)) for finding in findings], facts.notes


@pytest.mark.parametrize("kind", ["", "async "])
def test_a_good_function(root: Path, kind: str) -> None:
    body = "    print('x')\n    return float(solution_str == ground_truth and data_source == 'mine')\n"
    findings, (note,) = tried(root, kind + HEAD + body)
    assert findings == []
    assert note.startswith("Reward: 4 calls of ")
    assert note.endswith("1, 1 for the ground truth; 0, 0 for an empty text")


@pytest.mark.parametrize(
    "result", ["1", "True", "{'score': 0.5, 'acc': 1}", "__import__('decimal').Decimal('0.5')", "extra_info['index']"]
)
def test_results_that_verl_takes(root: Path, result: str) -> None:
    assert tried(root, f"{HEAD}    return {result}\n")[0] == []


@pytest.mark.parametrize(
    ("result", "what"),
    [
        ("None", "returns a NoneType, which is not a number"),
        ("'1.0'", "returns a str, which is not a number"),
        ("{'acc': 1}", "returns a dict, which is not a number"),
        ("float('nan')", "returns nan"),
        ("float('-inf')", "returns -inf"),
        ("{'score': float('nan')}", "returns nan"),
    ],
)
def test_results_that_are_no_numbers(root: Path, result: str, what: str) -> None:
    ((severity, said),) = tried(root, f"{HEAD}    return {result}\n")[0]
    assert severity == "error"
    call = "called for row 0 with the ground truth as the answer"
    assert said == f": compute_score, {call}, {what}, and in 3 more of 4 calls"


def test_a_function_that_raises(root: Path) -> None:
    findings, (note,) = tried(root, f"{HEAD}    return 1 / len(solution_str)\n")
    call = "called for row 0 with an empty text as the answer"
    what = f", line 2: compute_score, {call}, raises ZeroDivisionError: division by zero"
    assert findings == [("error", f"{what}, and in 1 more of 4 calls")]
    assert note.endswith("1, 1 for the ground truth; no number for an empty text")


def test_the_environment_and_the_arguments(root: Path) -> None:
    text = "import os\ndef compute_score(extra_info, scale, **rest):\n    assert sorted(rest) == ['data_source', "
    text += (
        "'ground_truth', 'solution_str']\n    return scale * extra_info['num_turns'] * float(os.environ['FACTOR'])\n"
    )
    settings = {"reward.custom_reward_function.reward_kwargs": {"scale": 3}}
    findings, (note,) = tried(root, text, environment={"FACTOR": "0.5"}, settings=settings)
    assert findings == []
    assert note.endswith("3, 3 for the ground truth; 3, 3 for an empty text")


def test_a_function_that_ends_the_process(root: Path) -> None:
    ((severity, what),) = tried(root, f"import os\n{HEAD}    os._exit(7)\n")[0]
    assert severity == "error"
    assert what == ": compute_score ends the process (exit status 7); 0 of 4 calls of compute_score have ended"


def test_a_function_that_does_not_return(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reward, "IMPORT_SECONDS", 5.0)
    monkeypatch.setattr(reward, "CALLS_SECONDS", 5.0)
    text = f"import time\n{HEAD}    return 1 if solution_str else time.sleep(60)\n"
    ((severity, what),) = tried(root, text)[0]
    assert severity == "warning"
    assert what == ": 1 of 4 calls of compute_score have ended within 5 s"


@pytest.mark.parametrize("changes", [{"rows": 0}, {"reward_file": None}, {"workload": "sft", "reward_file": None}])
def test_jobs_that_do_not_ask_for_it(root: Path, changes: Any) -> None:
    assert tried(root, f"{HEAD}    raise ValueError\n", **changes) == ([], [])


def test_a_reward_model_passes_more(root: Path) -> None:
    (severity, what), _signature = tried(
        root, f"{HEAD}    raise ValueError\n", settings={"reward.reward_model.enable": True}
    )[0]
    assert severity == "warning"
    assert "check_reward skips it" in what


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"row": "0", "answer": "an empty text", "seconds": 0.1, "score": 1.0},
        {"row": 0, "answer": 2, "seconds": 0.1, "score": 1.0},
        {"row": 0, "answer": "an empty text", "seconds": "x", "score": 1.0},
    ],
)
def test_answers_of_a_hostile_function(line: Any) -> None:
    assert call_of(line) is None


def test_text_of_a_hostile_function_is_shown_as_text(root: Path) -> None:
    ((_severity, what),) = tried(root, f"{HEAD}    raise ValueError('\\x1b[2Jx' + 'y' * 999)\n")[0]
    assert "\x1b" not in what
    assert len(what) < 500


@pytest.mark.parametrize(("score", "warned"), [("0.0", True), ("1.0", False), ("-float(not solution_str)", False)])
def test_a_reward_that_is_0_for_each_ground_truth(root: Path, score: str, warned: bool) -> None:
    findings, _notes = tried(root, f"{HEAD}    return {score}\n")
    assert [severity for severity, _what in findings] == (["warning"] if warned else [])


@pytest.mark.parametrize(
    ("name", "release", "known"),
    [("prime", "0.9.1", False), ("dapo", "0.9.1", True), ("limited", "0.9.1", True), ("prime", "0.8.0", True)],
)
def test_a_reward_manager_that_the_snapshot_does_not_have(root: Path, name: str, release: str, known: bool) -> None:
    version(root, release)
    for folder, names in (("experimental/reward_loop", ("naive", "dapo")), ("workers", ("naive", "prime"))):
        (root / CODE / "verl" / folder / "reward_manager").mkdir(parents=True)
        for each in names:
            file = root / CODE / "verl" / folder / f"reward_manager/{each}.py"
            file.write_text(f'@register("{each}")\nclass Manager: ...\n@register_legacy("limited")\nclass Other: ...\n')
    findings = reward_findings(request(root, settings={"reward.reward_manager.name": name}), Facts())
    assert [(finding.key, finding.severity) for finding in findings] == (
        [] if known else [("reward.reward_manager.name", "error")]
    )
