from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible import context
from ansible.module_utils.common.collections import ImmutableDict
from ansible_collections.argus.verl.plugins.plugin_utils.job_report import job_commands, playbook_command


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ansible.constants.DEFAULT_HOST_LIST", [str(tmp_path / "inventories" / "dev")])
    return tmp_path


def ran(monkeypatch: pytest.MonkeyPatch, *playbooks: str, inventories: list[str]) -> None:
    arguments: dict[str, Any] = {"args": tuple(playbooks), "inventory": tuple(inventories)}
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict(arguments))


@pytest.mark.parametrize(
    ("playbooks", "inventories", "expected"),
    [
        (["playbooks/submit.yml"], ["my lab"], "-i 'my lab' playbooks/logs.yml"),
        (["/opt/x/playbooks/submit.yml", "playbooks/fetch.yml"], ["inventories/dev"], "/opt/x/playbooks/logs.yml"),
        (["argus.verl.submit"], ["/etc/hosts", "box,"], "-i /etc/hosts -i box, argus.verl.logs"),
        # A playbook outside of the collection, and none.
        (["nightly.yml"], ["inventories/dev"], "playbooks/logs.yml"),
        ([], [], "playbooks/logs.yml"),
    ],
)
def test_a_command_can_be_pasted(
    here: Path, monkeypatch: pytest.MonkeyPatch, playbooks: list[str], inventories: list[str], expected: str
) -> None:
    ran(monkeypatch, *playbooks, inventories=[str(here / name) if "," not in name else name for name in inventories])
    assert playbook_command("logs", {"a": "b", "c": True}) == f"ansible-playbook {expected} -e a=b -e c=true"
    # `ansible HOST -m MODULE` has a pattern instead of playbooks.
    monkeypatch.setattr(context, "CLIARGS", ImmutableDict({"args": "head", "inventory": ("box,",)}))
    assert playbook_command("fetch", {}) == "ansible-playbook -i box, playbooks/fetch.yml"


def test_the_commands_for_a_job(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran(monkeypatch, "playbooks/submit.yml", inventories=[str(here / "inventories" / "dev")])
    names = {"Status": "status", "Follow": "logs", "Stop": "stop", "Evidence": "debug_bundle", "Fetch": "fetch"}
    lines = [f"{name}: playbooks/{book}.yml -e submission_id=sft-1" for name, book in names.items()]
    shown = [" ".join(line.split()).replace("ansible-playbook ", "") for line in job_commands("sft-1", "RUNNING")]
    assert shown == [f"{line} -e job_wait=true" if "logs" in line else line for line in lines]
    ended = ["Status", "Log", "Resubmit", "Fetch"]
    assert [line.partition(":")[0] for line in job_commands("sft-1", "FAILED")] == ended
    assert [line.partition(":")[0] for line in job_commands("sft-1", "SUCCEEDED", 10)] == [*ended, "Export"]
