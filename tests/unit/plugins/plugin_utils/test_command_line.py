from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible import context
from ansible.parsing.dataloader import DataLoader
from ansible.utils.context_objects import CLIArgs
from ansible.utils.vars import load_extra_vars
from ansible_collections.argus.verl.plugins.plugin_utils.command_line import (
    KEYS,
    extra_variables,
    misspelt,
    with_command_line,
)

ROLES = Path(__file__).resolve().parents[4] / "roles"
Variables = list[dict[str, Any]]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Variables]:
    """The extra variables of a run with these options."""

    def variables(*options: str) -> Variables:
        monkeypatch.setattr(context, "CLIARGS", CLIArgs({"extra_vars": options}))
        # Ansible reads them once.
        monkeypatch.setattr(load_extra_vars, "extra_vars", None, raising=False)
        return extra_variables(DataLoader())

    return variables


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), [{}]),
        (("retries=2",), [{"retries": "2"}]),
        (("retries=2 deadline=2h",), [{"retries": "2", "deadline": "2h"}]),
        (('{"resources": {"nnodes": 2}}',), [{"resources": {"nnodes": 2}}]),
        (("model=a", "model=b"), [{"model": "b"}]),
        (("set=a.b=1",), [{}, {"set": "a.b=1"}]),
        # Ansible would end it at the blank.
        (('set=["a=1", "b.c=1e-4"]',), [{'"b.c': None}, {"set": ["a=1", "b.c=1e-4"]}]),
        (('set=["a=1"]', "set=b=2"), [{}, {"set": ["a=1"]}, {"set": "b=2"}]),
        (("set={a: 1, b: x}",), [{"_raw_params": None}, {"set": {"a": 1, "b": "x"}}]),
        (('{"set": ["a=1"]}',), [{"set": ["a=1"]}]),
        (("tags={team: nlp, by: me}",), [{"tags": {"team": "nlp", "by": "me"}, "_raw_params": None}]),
        (("set=[a=1",), [{}, {"set": "[a=1"}]),
        # Values of other variables may be secrets, and are not needed.
        (("job_wait=true shared_root=/x",), [{"job_wait": None, "shared_root": None}]),
    ],
)
def test_the_variables_of_a_run(given: Callable[..., Variables], options: tuple[str, ...], expected: Variables) -> None:
    assert given(*options) == expected


def test_variables_of_a_file(given: Callable[..., Variables], tmp_path: Path) -> None:
    file = tmp_path / "sweep.yml"
    file.write_text("retries: 3\ndeadline: 2026-01-01\nset: [a=1]\n")
    assert given(f"@{file}") == [{"retries": 3, "deadline": "2026-01-01", "set": ["a=1"]}]


def test_values_are_plain_data(given: Callable[..., Variables]) -> None:
    """Ansible's own types would reach the archive."""
    (variables,) = given('{"model": "m", "resources": {"nnodes": 2}}')
    assert [type(variables["model"]), type(variables["resources"])] == [str, dict]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ([], {"model": "m", "trainer_overrides": {"a": 1}}),
        ([{"model": "n"}], {"model": "n", "trainer_overrides": {"a": 1}}),
        ([{"retries": "2"}], {"model": "m", "trainer_overrides": {"a": 1}, "retries": 2}),
        ([{"other": None, "shared_root": None, "resume_from": None}], {"model": "m", "trainer_overrides": {"a": 1}}),
        ([{"set": "a=2"}], {"model": "m", "trainer_overrides": ["a=2"]}),
        ([{"set": ["b=2"]}, {"set": {"b": 3}}], {"model": "m", "trainer_overrides": ["a=1", "b=3"]}),
        (
            [{"trainer_overrides": {"c": 1, "d": 2}, "set": ["d=3"]}],
            {"model": "m", "trainer_overrides": ["a=1", "c=1", "d=3"]},
        ),
        ([{"set": [5]}], {"model": "m", "trainer_overrides": [5]}),
        ([{"model": None}], {"model": "m", "trainer_overrides": {"a": 1}}),
        ([{"submission_id": "x"}], {"model": "m", "trainer_overrides": {"a": 1}}),
    ],
)
def test_keys_of_the_command_line_replace_those_of_a_jobspec(variables: Variables, expected: dict[str, Any]) -> None:
    given = {"model": "m", "trainer_overrides": {"a": 1}}
    assert with_command_line(given, variables, without=("submission_id",)) == expected
    assert given == {"model": "m", "trainer_overrides": {"a": 1}}


def test_mappings_are_merged() -> None:
    given = {"resources": {"nnodes": 1, "gpus_per_node": 4}, "tags": {"a": "b"}}
    changed = with_command_line(given, [{"resources": {"nnodes": 2}, "tags": "c=d"}])
    assert changed == {"resources": {"nnodes": 2, "gpus_per_node": 4}, "tags": {"a": "b", "c": "d"}}
    assert with_command_line({}, [{"submission_id": "x"}]) == {"submission_id": "x"}


@pytest.mark.parametrize("jobspec", [None, ["x"], 3])
def test_what_is_no_jobspec_stays(jobspec: object) -> None:
    assert with_command_line(jobspec, [{"retries": "2"}]) == jobspec


@pytest.mark.parametrize(
    ("name", "near"),
    [("retrys", "retries"), ("models", "model"), ("Deadline", "deadline"), ("tag", "tags"), ("env_var", "env_vars")],
)
def test_misspelt_keys(name: str, near: str) -> None:
    (finding,) = misspelt([{"retries": "2"}, {name: None}, {name: None}])
    assert (finding.where, finding.key) == (f"-e {name}", name)
    assert f'did you mean "{near}"?' in finding.todo


@pytest.mark.parametrize("name", ["data_root", "who", "seed", "ansible_user", "job_tags", '"models', "version"])
def test_other_variables_are_not_misspelt_keys(name: str) -> None:
    assert misspelt([{name: None}]) == []


@pytest.mark.parametrize("name", ["trainer.save_freq", "+data.seed", "~x"])
def test_overrides_after_a_blank_are_no_variables(name: str) -> None:
    """`-e 'set=data.train_batch_size=16 trainer.save_freq=2'`."""
    (finding,) = misspelt([{"set": None, name: None}])
    assert (finding.where, finding.what) == (f"-e {name}", "is an override, and no variable")
    assert f'"{name}=…"]' in finding.todo


def test_no_variable_of_the_collection_is_a_misspelt_key() -> None:
    names = set()
    for file in ROLES.glob("*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(file.read_text())["argument_specs"].values():
            names |= set(entry.get("options", {}))
    assert len(names) > 50
    # `tag` is a variable of status.yml alone, and a misspelt key for submit.yml.
    assert misspelt([dict.fromkeys(names - KEYS - {"tag"})]) == []
