"""Every playbook checks the inventory first, and names the groups of its plays: Ansible skips a group without hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

PLAYBOOKS = sorted((Path(__file__).resolve().parents[3] / "playbooks").glob("*.yml"))
IMPORT = "ansible.builtin.import_playbook"
VALIDATE = "argus.verl.validate"
# Machines are represented by nodes.
NAMES = {"{{ groups | argus.verl.machine_hosts(hostvars | default({}), ansible_play_hosts_all) }}": "ray"}


def plays(playbook: Path) -> list[dict[str, Any]]:
    loaded = yaml.safe_load(playbook.read_text())
    assert isinstance(loaded, list)
    return loaded


def groups(playbook: Path) -> set[str]:
    """The groups of the plays of a playbook, and of those that it imports."""
    hosts = {NAMES.get(play["hosts"], play["hosts"]) for play in plays(playbook) if "hosts" in play}
    for play in plays(playbook):
        if IMPORT in play and play[IMPORT] != VALIDATE:
            hosts |= groups(playbook.with_name(f"{play[IMPORT].removeprefix('argus.verl.')}.yml"))
    return hosts


# Around those of a cluster, which validate: the hosts come from Slurm first, and go back last.
AROUND = ("slurm_up", "slurm_down")
# init has no inventory yet.
CHECKED = [one for one in PLAYBOOKS if one.stem not in ("init", "validate", *AROUND)]


@pytest.mark.parametrize("playbook", CHECKED, ids=lambda path: path.stem)
def test_playbook_validates_first_and_names_its_groups(playbook: Path) -> None:
    first = plays(playbook)[0]
    assert first[IMPORT] in (VALIDATE, "argus.verl.preflight"), "validate the inventory first"
    assert set(first["vars"]["works_on"]) == groups(playbook)
