from __future__ import annotations

import math
import random
from typing import Any

import pytest
from jobs import parse_override

from argus.io.hydra import hydra_value, merge_overrides, override_key, override_list, override_text

VALUES: list[Any] = [
    *(None, True, 0, -3, 10**20, 0.5, 1e-05, 1e22, math.inf, "", "two words", "a,b", "it's", 'say "x"', "a\\", "größe"),
    # Text that is no value of another type.
    *("null", "False", "1", "1e5", "-inf", "+NaN", "1 2", "glob(*)", "[1,2]", "100%", "/private/common/models/x"),
    *([], {}, [1, "1", None, True, "a,b"], [{"name": "a b", "nested": {"on": True, "empty": []}}], [{"optim.lr": 1}]),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_hydra_parses_the_same_value_back(value: Any) -> None:
    back = parse_override(f"key={hydra_value(value)}").value()
    assert back == value
    assert type(back) is type(value)


def test_hydra_parses_any_text_back() -> None:
    pytest.importorskip("hydra")
    chance = random.Random(17)  # noqa: S311
    for _ in range(400):
        text = "".join(chance.choice("ab1.e_-+ '\"\\,=:{}[]()$#\n\t~@%|/nfut") for _ in range(chance.randint(0, 8)))
        for value in (text, [text, "x"], [{"k": text}]):
            assert parse_override(f"key={hydra_value(value)}").value() == value


def test_overrides_from_a_mapping() -> None:
    mapping = {
        "trainer.save_freq": 5,
        "data": {"train_batch_size": 8, "filter": {"on": False}},
        "actor_rollout_ref.actor": {"optim.lr": 1.0e-3, "stop": ["a", "b,c"]},
        "nothing": {},
    }
    assert override_list(mapping) == [
        *("trainer.save_freq=5", "data.train_batch_size=8", "data.filter.on=False"),
        *("actor_rollout_ref.actor.optim.lr=0.001", "actor_rollout_ref.actor.stop=[a,'b,c']", "nothing={}"),
    ]


@pytest.mark.parametrize(
    ("mapping", "override"),
    [
        ({"model": {"b": {"++a": 1}}}, "++model.b.a=1"),
        ({"++model": {"+a": 1}}, "+model.a=1"),
        ({"model": {"~a": None}}, "~model.a"),
        ({"~model.a": 1}, "~model.a=1"),
        ({"model.a": None}, "model.a=null"),
        ({"db@package": "mysql"}, "db@package=mysql"),
    ],
)
def test_the_prefix_of_an_override_comes_first(mapping: dict[str, Any], override: str) -> None:
    assert override_list(mapping) == [override]
    assert parse_override(override).key_or_group == override_key(override)
    assert override_text(override) == ("" if override == "~model.a" else override.partition("=")[2])


def test_overrides_of_the_user_replace_defaults() -> None:
    defaults = ["a=1", "++b.c=2", "d=3", "e=4"]
    assert merge_overrides(defaults, ["b.c=20", "~d", "f=6", "+e=5"]) == ["a=1", "b.c=20", "~d", "f=6", "+e=5"]
    assert merge_overrides(defaults, []) == defaults


@pytest.mark.parametrize(
    "value", ["a=1", None, ["a=1", "b"], ["a=1", 2], ["=1"], ["~"], ["@package=1"], {"+": 1}], ids=str
)
def test_an_entry_that_is_not_an_override(value: Any) -> None:
    with pytest.raises(ValueError, match=r"is a |is not key=value"):
        override_list(value)
