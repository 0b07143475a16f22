from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible import context
from ansible.parsing.dataloader import DataLoader
from ansible.utils.context_objects import CLIArgs
from ansible.utils.vars import load_extra_vars
from ansible_collections.argus.verl.plugins.plugin_utils.jobspec_file import extra_variables

Variables = list[dict[str, Any]]


@pytest.fixture
def parse(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Variables]:
    """The extra variables of a run with these options."""

    def read(*options: str) -> Variables:
        monkeypatch.setattr(context, "CLIARGS", CLIArgs({"extra_vars": options}))
        # Ansible reads them once.
        monkeypatch.setattr(load_extra_vars, "extra_vars", None, raising=False)
        return extra_variables(DataLoader(), of_new_job=True)

    return read


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), [{}]),
        (("retries=2 deadline=2h",), [{"retries": None, "deadline": None}]),
        (("set=a.b=1",), [{}, {"set": "a.b=1"}]),
        # Ansible would end it at the blank.
        (('set=["a=1", "b.c=1e-4"]',), [{'"b.c': None}, {"set": ["a=1", "b.c=1e-4"]}]),
        (('set=["a=1"]', "set=b=2"), [{}, {"set": ["a=1"]}, {"set": "b=2"}]),
        (("set={a: 1, b: x}",), [{"_raw_params": None}, {"set": {"a": 1, "b": "x"}}]),
        (("set=[a=1",), [{}, {"set": "[a=1"}]),
        # Also of submit.yml and fetch.yml in one run.
        (("submission_id=grpo-1 set=seed=1",), [{}, {"set": ["submission_id=grpo-1"]}, {"set": "seed=1"}]),
        # Values of other variables may be secrets, and are not needed.
        (("job_wait=true shared_root=/x",), [{"job_wait": None, "shared_root": None}]),
    ],
)
def test_the_variables_of_a_run(parse: Callable[..., Variables], options: tuple[str, ...], expected: Variables) -> None:
    assert parse(*options) == expected


def test_variables_of_a_file(parse: Callable[..., Variables], tmp_path: Path) -> None:
    # The origin of a job is not its id.
    parse("submission_id=grpo-1")
    assert extra_variables(DataLoader(), of_new_job=False) == [{}]
    (tmp_path / "sweep.yml").write_text("other: 3\nset: {deadline: 2026-01-01, a: x}\n")
    names, changes = parse(f"@{tmp_path}/sweep.yml")
    assert (names, changes) == ({"other": None}, {"set": {"deadline": "2026-01-01", "a": "x"}})
    # Ansible's own types would reach the archive.
    assert type(changes["set"]["a"]) is str
