"""Wrong usage fails with a sentence, and nothing runs: a CI must not be green if nothing was submitted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from system import HEAD, INVENTORY, REPO, playbook, said


def refused(name: str, *expected: str, **arguments: Any) -> None:
    done = playbook(name, check=False, **arguments)
    assert done.returncode != 0, done.stdout
    for piece in expected:
        assert piece in said(done.stdout + done.stderr), done.stdout + done.stderr
    assert "changed=1" not in done.stdout and "TASK [argus.verl." not in done.stdout, done.stdout


@pytest.mark.parametrize("content", [None, "", "all: [", "all:\n"], ids=["missing", "empty", "no YAML", "no hosts"])
def test_inventory_without_hosts(content: str | None, tmp_path: Path) -> None:
    file = tmp_path / "hosts.yml"
    if content is not None:
        file.write_text(content)
    problem = "does not exist correct the path" if content is None else "has no hosts add hosts; Ansible's warnings"
    refused("submit", f"error {file} {problem}", inventories=(file,))


def test_inventory_without_hosts_and_a_limit(tmp_path: Path) -> None:
    missing = (tmp_path / "hosts.yml",)
    refused("submit", "does not exist", inventories=missing, arguments=["--limit", HEAD])


def test_second_inventory_that_is_missing(tmp_path: Path) -> None:
    expected = ("error", f"{tmp_path}/more.yml does not exist")
    refused("submit", *expected, inventories=(INVENTORY, tmp_path / "more.yml"))


def test_inventory_of_something_else(tmp_path: Path) -> None:
    file = tmp_path / "hosts.yml"
    file.write_text("web: {hosts: {www-1: , www-2: }}\nheads: {hosts: {www-3: }}\n")
    expected = ("group head has no hosts", "group workers has no hosts")
    refused("stage", *expected, inventories=(file,))


@pytest.mark.parametrize(
    ("name", "limit", "expected"),
    [
        ("submit", "workers", f"group head --limit leaves out all of its hosts add some of them: {HEAD}"),
        ("drain", "test-ray-worker-1", f"group head --limit leaves out all of its hosts add some of them: {HEAD}"),
        ("cluster_up", "nowhere", "nowhere"),
    ],
)
def test_limit_that_leaves_nothing_to_do(name: str, limit: str, expected: str) -> None:
    refused(name, expected, arguments=["--limit", limit])


def test_misspelt_variables() -> None:
    refused("submit", "staging_model", 'did you mean "staging_models"?', staging_model=1, my_own=1)


def test_validate_describes_the_inventory_in_one_line() -> None:
    done = playbook("validate", cluster_name="new")
    shown = [line for line in done.stdout.splitlines() if line and not line.startswith(("PLAY", "Done: "))]
    assert shown == ["Inventory fine: cluster new, 1 head, 2 workers"]


def test_inventory_is_read_without_a_configuration(tmp_path: Path) -> None:
    """A copy of an inventory outside the checkout, with the JobSpecs and rewards beside its hosts."""
    copy = tmp_path / "lab"
    shutil.copytree(REPO / "inventories" / "dev", copy)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    environment |= {"ANSIBLE_CONFIG": str(tmp_path / "none.cfg"), "ANSIBLE_NOCOLOR": "1"}

    command = ["ansible-inventory", "-i", "lab/hosts.yml", "--list"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, text=True, capture_output=True, check=True)
    assert done.stderr == ""
    hosts = json.loads(done.stdout)["_meta"]["hostvars"]
    assert hosts.keys() == {"mvp-ray-head", "mvp-ray-worker-0", "mvp-ray-worker-1"}
    assert hosts["mvp-ray-head"]["cluster_name"] == "mvp"
