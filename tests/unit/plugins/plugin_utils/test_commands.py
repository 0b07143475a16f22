from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible import context
from ansible.module_utils.common.collections import ImmutableDict
from ansible_collections.argus.verl.plugins.plugin_utils.job_report import (
    inventory_arguments,
    job_commands,
    playbook_command,
    sibling_playbook,
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ansible.constants.DEFAULT_HOST_LIST", [str(tmp_path / "inventories" / "dev")])
    return tmp_path


def ran(monkeypatch: pytest.MonkeyPatch, *playbooks: str, inventories: list[str]) -> None:
    arguments: dict[str, Any] = {"args": tuple(playbooks), "inventory": tuple(inventories)}
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict(arguments))


def test_the_default_inventory_is_left_out(here: Path) -> None:
    assert inventory_arguments([str(here / "dev")], [str(here / "dev")]) == []


def test_inventories_as_they_were_given(here: Path) -> None:
    given = [str(here / "inventories" / "prod"), "/etc/ansible/hosts", "box,"]
    expected = ["-i", "inventories/prod", "-i", "/etc/ansible/hosts", "-i", "box,"]
    assert inventory_arguments(given, [str(here / "inventories" / "dev")]) == expected


@pytest.mark.parametrize(
    ("playbooks", "expected"),
    [
        (["playbooks/submit.yml"], "playbooks/logs.yml"),
        (["/opt/argus.verl/playbooks/submit.yml", "playbooks/fetch.yml"], "/opt/argus.verl/playbooks/logs.yml"),
        (["argus.verl.submit"], "argus.verl.logs"),
        # A playbook outside of the collection, and none.
        (["nightly.yml"], "playbooks/logs.yml"),
        ([], "playbooks/logs.yml"),
    ],
)
def test_a_playbook_is_named_like_the_one_that_runs(playbooks: list[str], expected: str) -> None:
    assert sibling_playbook("logs", playbooks) == expected


def test_a_command_can_be_pasted(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran(monkeypatch, "playbooks/submit.yml", inventories=[str(here / "my lab")])
    assert playbook_command("logs", {"submission_id": "sft-1", "job_wait": True}) == (
        "ansible-playbook -i 'my lab' playbooks/logs.yml -e submission_id=sft-1 -e job_wait=true"
    )


def test_a_command_outside_of_any_playbook(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict())
    assert playbook_command("fetch", {}) == "ansible-playbook playbooks/fetch.yml"
    # `ansible HOST -m MODULE` has a pattern instead of playbooks.
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict({"args": "head", "inventory": ("box,",)}))
    assert playbook_command("fetch", {}) == "ansible-playbook -i box, playbooks/fetch.yml"


def test_the_commands_for_a_job(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran(monkeypatch, "playbooks/submit.yml", inventories=[str(here / "inventories" / "dev")])
    assert job_commands("sft-1", "RUNNING") == [
        "Status:   ansible-playbook playbooks/status.yml -e submission_id=sft-1",
        "Follow:   ansible-playbook playbooks/logs.yml -e submission_id=sft-1 -e job_wait=true",
        "Stop:     ansible-playbook playbooks/stop.yml -e submission_id=sft-1",
        "Evidence: ansible-playbook playbooks/debug_bundle.yml -e submission_id=sft-1",
        "Fetch:    ansible-playbook playbooks/fetch.yml -e submission_id=sft-1",
    ]
    ended = ["Status", "Log", "Resubmit", "Fetch"]
    assert [line.partition(":")[0] for line in job_commands("sft-1", "FAILED")] == ended
    assert [line.partition(":")[0] for line in job_commands("sft-1", "SUCCEEDED", 10)] == [*ended, "Export"]
