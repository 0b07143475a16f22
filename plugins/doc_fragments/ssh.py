# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The options of the connection ansible.builtin.ssh, taken from the ansible-core that is installed."""

from __future__ import annotations

from typing import Any

import yaml
from ansible.plugins.connection import ssh


def without_versions(documented: Any) -> Any:
    """The documentation without `version_added`, which Ansible would take for a version of this collection."""
    if isinstance(documented, dict):
        return {key: without_versions(value) for key, value in documented.items() if key != "version_added"}
    return [without_versions(value) for value in documented] if isinstance(documented, list) else documented


OPTIONS = {"options": without_versions(yaml.safe_load(ssh.DOCUMENTATION)["options"])}
# Linters expect a text where a class has this attribute in its body.
ModuleDocFragment = type("ModuleDocFragment", (), {"DOCUMENTATION": yaml.safe_dump(OPTIONS)})
