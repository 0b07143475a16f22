# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where images come from, as the inventory says: read for filters of several roles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.argus.verl.plugins.module_utils.cluster.images import Sources


def sources_of(builds: Mapping[str, Any], archive: Mapping[str, Any]) -> Sources:
    """builds: the result of the filter image_builds."""
    return Sources(
        builds={image: build["inputs"] for image, build in builds.items()},
        pushed=[image for image, build in builds.items() if build["push"]],
        archive=bool(archive),
    )
