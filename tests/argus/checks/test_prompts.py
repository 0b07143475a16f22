"""The node's transformers is not installed here: a package of that name, which counts words, stands in for it;
tests/training compares the lengths with those of the real one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from checked_job import CODE, request, version, write
from pyarrow import parquet

from argus.checks import prompts as measured
from argus.checks.prompts import MAX_SAMPLED_ROWS, prompt_findings, read_sample
from argus.checks.request import CheckRequest, Facts

TRANSFORMERS = """
import json
from pathlib import Path
from jinja2 import Environment

class AutoTokenizer:
    @classmethod
    def from_pretrained(cls, path):
        tokenizer, path = cls(), Path(path)
        file = path / "chat_template.jinja"
        tokenizer.settings = json.loads((path / "tokenizer_config.json").read_text())
        tokenizer.template = file.read_text() if file.exists() else tokenizer.settings["chat_template"]
        return tokenizer
    def apply_chat_template(self, row, chat_template=None, tokenize=True, **arguments):
        assert not tokenize
        environment = Environment()
        environment.globals["raise_exception"] = refuse
        return environment.from_string(chat_template or self.template).render(messages=row, **arguments)
    def __call__(self, text, add_special_tokens):
        assert not add_special_tokens
        return {"input_ids": [len(word) for word in text.split()]}

def refuse(message):
    raise ValueError(message)
"""
TEMPLATE = "{% for m in messages %}{{ m.content }} {% endfor %}{% if add_generation_prompt %}go <end>{% endif %}"


@pytest.fixture(autouse=True)
def transformers(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib/transformers.py").write_text(TRANSFORMERS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "lib"))
    settings = {"chat_template": TEMPLATE}
    (root / "common/models/tiny/tokenizer_config.json").write_text(json.dumps(settings))
    version(root, "0.9.1")


def prompts(root: Path, *words: int, name: str = "rl", split: str = "train") -> None:
    """A split with prompts of so many words; rendered, each has two more in RL."""
    key = "messages" if name == "sft" else "prompt"
    write(root, [{key: [{"role": "user", "content": "w " * count}]} for count in words], name, split)


def report(root: Path, workload: str = "grpo", limit: int = 10, **settings: Any) -> tuple[list[tuple[str, str]], Facts]:
    key = "data.max_length" if workload == "sft" else "data.max_prompt_length"
    facts = Facts()
    check_request: CheckRequest = request(root, workload, {key: limit, "data.train_batch_size": 2, **settings})
    findings = prompt_findings(check_request, facts)
    assert {finding.key for finding in findings} <= {key, "dataset"}
    return [(finding.severity, finding.problem) for finding in findings], facts


def test_prompts_that_fit(root: Path) -> None:
    prompts(root, 8, 1)
    prompts(root, 8, split="val")
    findings, facts = report(root)
    assert findings == []
    assert [note.partition(" measured, the longest has ")[::2] for note in facts.notes] == [
        ("Prompts: 2 of 2 in train", "10 tokens of data.max_prompt_length 10"),
        ("Prompts: 1 of 1 in val", "10 tokens of data.max_prompt_length 10"),
    ]
    template = {"actor_rollout_ref.model.custom_chat_template": "a {{ more }} b"}
    findings, facts = report(root, **template, **{"data.apply_chat_template_kwargs": {"more": "c d e"}})
    assert findings == [] and "the longest has 5 tokens" in facts.notes[0]


FILTER = {"data.filter_overlong_prompts": True}


@pytest.mark.parametrize(
    ("workload", "words", "settings", "severity", "problem"),
    [
        ("grpo", (9, 8, 1), {}, "warning", "1 of 3 prompts in train are longer (the longest has 11 tokens): verl cuts"),
        ("grpo", (9, 8, 1), {"data.truncation": "error"}, "warning", "verl cuts off their beginnings"),
        ("grpo", (9, 8, 1), FILTER, "warning", "verl drops them ("),
        ("grpo", (9, 8, 1), {**FILTER, "data.train_batch_size": 3}, "error", "the 2 that are left do not fill a batch"),
        ("grpo", (9, 9), FILTER, "error", "verl drops them all"),
        ("sft", (11, 10), {"data.truncation": "error"}, "error", "1 of 2 conversations in train are longer"),
        ("sft", (11, 10), {"data.truncation": "left"}, "warning", "verl cuts off their ends"),
    ],
)
def test_prompts_that_are_too_long(
    root: Path, workload: str, words: tuple[int, ...], settings: Any, severity: str, problem: str
) -> None:
    name = "sft" if workload == "sft" else "rl"
    prompts(root, *words, name=name)
    prompts(root, 1, name=name, split="val")
    ((level, text),), _facts = report(root, workload, **settings)
    assert (level, text.startswith("is 10, but "), problem in text) == (severity, True, True)


def test_a_sample_is_taken_from_all_of_a_file(root: Path) -> None:
    rows = [{"prompt": [{"role": "user", "content": f"w{number}"}]} for number in range(4000)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), root / "datasets/rl/train.parquet", row_group_size=100)
    sample = read_sample(request(root), "train")
    numbers = [int(row[0]["content"][1:]) for row in sample.rows]
    assert (len(sample.rows), sample.total_rows) == (MAX_SAMPLED_ROWS, 4000)
    assert numbers[0] == 0 and max(numbers) >= 3500
    prompts(root, 9, split="val")
    assert f"{MAX_SAMPLED_ROWS} of {MAX_SAMPLED_ROWS} sampled prompts in train" in report(root, limit=2)[0][0][1]


def test_what_the_template_refuses(root: Path) -> None:
    template = root / "common/models/tiny/chat_template.jinja"
    template.write_text("{% if messages[0].content == 'w ' %}{{ raise_exception('too short') }}{% endif %}x")
    prompts(root, 1, 5)
    prompts(root, 5, split="val")
    ((severity, problem),) = report(root)[0]
    assert severity == "warning" and "refuses 1 of 2 rows in train: ValueError: too short" in problem
    template.write_text("{% {")
    assert [severity for severity, _text in report(root)[0]] == ["error", "error"]
    (root / "common/models/tiny/tokenizer_config.json").write_text("{% {")
    assert report(root) == ([], Facts())


def test_nothing_to_measure_with(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts(root, 30)
    assert report(root, **{"data.custom_cls.path": "/x.py"}) == ([], Facts())
    for split in ("train", "val"):
        write(root, [{"prompt": [{"role": "user", "content": "w " * 30}], "images": ["x"]}], split=split)
    assert report(root) == ([], Facts())
    prompts(root, 30)
    # A template that does not end.
    monkeypatch.setattr(measured, "PROCESS_TIMEOUT_SECONDS", 1)
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    (root / "common/models/tiny/chat_template.jinja").write_text(loop)
    assert report(root) == ([], Facts())
    (root / "common/models/tiny/tokenizer.json").unlink()
    assert report(root) == ([], Facts())


@pytest.mark.parametrize(
    ("template", "said_of_it"),
    [
        ("{% if messages|length > 1 and messages[0].role == messages[1].role %}{{ raise_exception('other') }}", "oth"),
        ("{% if messages|length == 1 and messages[0].role == 'user' %}{{ raise_exception('answer') }}", "answer"),
        ("{% if messages|length == 1 %}first{% endif %}{% if false %}", "ignore_input_ids_mismatch"),
        ("{% if false %}", ""),
    ],
)
def test_messages_that_are_rendered_alone(root: Path, template: str, said_of_it: str) -> None:
    """verl 0.9.1 renders the messages of SFT so."""
    file = root / CODE / "verl/utils/dataset/multiturn_sft_dataset.py"
    file.parent.mkdir(parents=True)
    file.write_text("messages=[message]\ndef sanity_check(self): ...\n")
    text = f"{template}{{% endif %}}{{% for m in messages %}}{{{{ m.content }}}} {{% endfor %}}"
    (root / "common/models/tiny/chat_template.jinja").write_text(text)
    rows = [{"messages": [{"role": "user", "content": "a b"}, {"role": "assistant", "content": "c"}]}] * 2
    for split in ("train", "val"):
        write(root, rows, "sft", split)
    findings, _facts = report(root, "sft")
    assert [severity for severity, _text in findings] == (["error", "error"] if said_of_it else [])
    assert all(said_of_it in problem for _severity, problem in findings)


@pytest.mark.parametrize(("size", "is_known"), [(6, True), (5, False), (None, True)])
def test_tokens_that_the_model_does_not_have(root: Path, size: int | None, is_known: bool) -> None:
    for split in ("train", "val"):
        prompts(root, 1, split=split)
    # The stand-in's token of a word is its length: <end> is 5.
    findings = prompt_findings(request(root, settings={"data.max_prompt_length": 10}), Facts(vocab_size=size))
    assert {(finding.key, finding.severity) for finding in findings} == (set() if is_known else {("model", "error")})
