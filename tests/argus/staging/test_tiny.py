from __future__ import annotations

import re

from argus.staging.tiny import (
    problems,
    rl_rows,
    sft_rows,
)


def test_problems_are_the_same_at_every_call_and_have_their_answer() -> None:
    assert problems(20) == problems(40)[:20]
    for problem in problems(40):
        has, gets = map(int, re.findall(r"\d+", problem.question))
        assert problem.result == str(has + gets)
        assert problem.answer.endswith(f"\n#### {problem.result}")


def test_rl_rows_have_what_verls_gsm8k_reward_reads() -> None:
    rows = rl_rows()
    assert {split: len(part) for split, part in rows.items()} == {"train": 128, "val": 16}
    assert rows["train"][0] == {
        "data_source": "openai/gsm8k",
        "prompt": [{"role": "user", "content": problems(1)[0].question}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": problems(1)[0].result},
        "extra_info": {
            "split": "train",
            "index": 0,
            "question": problems(1)[0].question,
            "answer": problems(1)[0].answer,
        },
    }
    assert [row["extra_info"]["index"] for row in rows["val"]] == list(range(16))
    assert rows["val"][0]["prompt"][0]["content"] == problems(129)[128].question


def test_sft_rows_are_conversations() -> None:
    rows = sft_rows()
    assert {split: len(part) for split, part in rows.items()} == {"train": 128, "val": 32}
    assert rows["train"][1] == {
        "messages": [
            {"role": "user", "content": problems(2)[1].question},
            {"role": "assistant", "content": problems(2)[1].answer},
        ]
    }
