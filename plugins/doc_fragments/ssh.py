# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import yaml
from ansible.plugins.connection.ssh import DOCUMENTATION as SSH


class ModuleDocFragment:
    """The options of ansible.builtin.ssh, as the release of ansible-core that runs has them."""

    DOCUMENTATION = yaml.safe_dump({"options": yaml.safe_load(SSH)["options"]})
