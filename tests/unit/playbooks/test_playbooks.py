"""Every playbook checks the inventory first, and names the groups of its plays: Ansible skips a group without hosts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

PLAYBOOKS = sorted((Path(__file__).resolve().parents[3] / "playbooks").glob("*.yml"))
ROLES = PLAYBOOKS[0].parents[1] / "roles"
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
    found = {NAMES.get(play["hosts"], play["hosts"]) for play in plays(playbook) if "hosts" in play}
    for play in plays(playbook):
        if IMPORT in play and play[IMPORT] != VALIDATE:
            found |= groups(playbook.with_name(f"{play[IMPORT].removeprefix('argus.verl.')}.yml"))
    return found


def test_there_are_playbooks() -> None:
    assert {"cluster_up", "submit", "validate"} <= {playbook.stem for playbook in PLAYBOOKS}


# Around those of a cluster, which validate: the hosts come from Slurm first, and go back last.
AROUND = ("slurm_up", "slurm_down")
# init has no inventory yet.
CHECKED = [one for one in PLAYBOOKS if one.stem not in ("init", "validate", *AROUND)]


@pytest.mark.parametrize("playbook", CHECKED, ids=lambda path: path.stem)
def test_playbook_validates_first_and_names_its_groups(playbook: Path) -> None:
    first = plays(playbook)[0]
    assert first[IMPORT] in (VALIDATE, "argus.verl.preflight"), "validate the inventory first"
    assert set(first["vars"]["works_on"]) == groups(playbook)


def imported_roles(playbook: Path) -> list[tuple[str, str, bool]]:
    """The roles of a playbook and of those that it imports, in their order: name, entry point, whether it validates."""
    found: list[tuple[str, str, bool]] = []
    for play in plays(playbook):
        if IMPORT in play:
            found += imported_roles(playbook.with_name(f"{play[IMPORT].removeprefix('argus.verl.')}.yml"))
        found += [(role, "main", True) for role in play.get("roles", [])]
        for task in play.get("tasks", []):
            role = task.get("ansible.builtin.import_role") or task.get("ansible.builtin.include_role")
            if role:
                found.append((role["name"], role.get("tasks_from", "main"), role.get("rolespec_validate", True)))
    return found


def options(role: str, entry: str) -> set[str]:
    specs = yaml.safe_load((ROLES / role.removeprefix("argus.verl.") / "meta" / "argument_specs.yml").read_text())
    return set(specs["argument_specs"].get(entry, {}).get("options", {}))


OF_THE_PLAN = [
    *(("argus.verl.preflight", entry) for entry in ("main", "probe")),
    *(("argus.verl.ray_node", entry) for entry in ("plan", "status", "down")),
]


@pytest.mark.parametrize("playbook", PLAYBOOKS, ids=lambda path: path.stem)
def test_variables_are_validated_once(playbook: Path) -> None:
    """Each validation is a task on every host: once is enough, and it comes before the first use."""
    validated: dict[str, set[str]] = {}
    for role, entry, validates in imported_roles(playbook):
        known, used = validated.setdefault(role, set()), options(role, entry)
        # The plan of a cluster, and that of preflight, checks the variables of all nodes in its one task.
        known |= used if (role, entry) in OF_THE_PLAN else set()
        assert validates == bool(used - known), f"{role}, {entry}: validated {'again' if validates else 'never'}"
        known |= used
