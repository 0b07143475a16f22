# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of a JobSpec, for the controller: the program, which defines them, needs more than a controller has."""

from __future__ import annotations

import functools
import json
from pathlib import Path

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "jobspec.schema.json"


@functools.cache
def jobspec_keys() -> frozenset[str]:
    """The top-level keys."""
    return frozenset(json.loads(SCHEMA.read_bytes())["properties"])
