# SPDX-License-Identifier: GPL-3.0-or-later
"""What to do about an override that Hydra refuses, or that nothing reads. A hint is a setting that exists in this
release, that the job reads, and that is not refused next.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection

from ..checks.common import leaves
from ..jobspec.owned import owned_todo
from ..jobspec.spec import JobSpec
from ..jobspec.verl_releases import Profile
from .config import JobConfig
from .config_rl import absent_parts

# Of "save_frequency" and "save_freq". Most names with a lower ratio are other settings.
SIMILAR = 0.75
MOST_HINTS = 3


def hint(key: str, job: JobConfig, profile: Profile | None, unread: Collection[str] = ()) -> str:
    """What to write instead of a key of the trainer; "" if nothing is close enough.

    unread: keys of the configuration that nothing reads.
    """
    if key in JobSpec.paths().values():
        return "it is a key of the JobSpec: write it beside trainer_overrides"
    known = [name for name, _value in leaves(job.values, used=False) if "[" not in name and name not in unread]
    known += [] if "." in key else JobSpec.paths().values()
    found = close_settings(key, [name for name in known if not name.startswith(tuple(absent_parts(job)))])
    refused = {name: owned_todo(name) for name in found}
    if owned := next(filter(None, refused.values()), ""):
        return owned
    refused = {name: (profile and profile.unread_hint(job.workload, name)) or "" for name in found}
    accepted = [name for name in found if not refused[name]][:MOST_HINTS]
    if accepted:
        return f"did you mean {' or '.join(accepted)}?"
    return next(iter(refused.values()), "")


def close_settings(key: str, known: list[str]) -> list[str]:
    """The settings that end like a key, or have a similar name in the same section, or the same one in another."""
    section, _dot, name = key.rpartition(".")
    if same_end := [each for each in known if each.endswith(f".{key}")]:
        return same_end
    siblings = {each.rpartition(".")[2]: each for each in known if each.rpartition(".")[0] == section}
    if similar := difflib.get_close_matches(name, siblings, MOST_HINTS, SIMILAR):
        return [siblings[each] for each in similar]
    same_name = [each for each in known if each.endswith(f".{name}")]
    return same_name if len(same_name) <= MOST_HINTS else []
