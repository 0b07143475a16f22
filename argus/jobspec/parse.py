# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the YAML of a JobSpec to a checked JobSpec, without a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..common.findings import Finding
from ..launcher.hydra import override_key, override_list
from .limits import infinite_findings, limit_findings
from .options import OPTIONS, STAND_INS, meant, typed, unknown_keys, without_empty
from .owned import OVERRIDES
from .spec import JobSpec
from .spec_checks import spec_findings, syntax_findings

# Keys whose problems do not affect the checks of other keys. Without a reward function, a dataset may have none at all.
SEPARABLE = {
    *("submission_id", "launcher", "code_path", "model", "dataset", "env_vars", "secrets", "retries", "on_stall"),
    *(
        "start_timeout",
        "stall_timeout",
        "resume_from",
        "debugger",
        "tags",
        "check_reward",
        "accept",
        "deadline",
        "wait_for_resources",
    ),
}


def parse_jobspec(given: Any) -> tuple[list[Finding], JobSpec | None]:
    """All problems of a JobSpec that can be found without a cluster, and the JobSpec with its defaults.

    A default or a stand-in replaces a value that cannot be read, so that all other keys are checked as well. Use the
    JobSpec only if there are no findings. It is None if `given` is not a mapping, or too large.
    """
    if not isinstance(given, Mapping):
        what = f"is a {type(given).__name__}"
        return [Finding("jobspec", what, "give a mapping of keys, such as workload: grpo")], None
    too_large = limit_findings(given) or infinite_findings(given)
    if too_large:
        return too_large, None
    given = without_empty(given, OPTIONS)
    found = unknown_keys(given, OPTIONS)
    wrong_types, values = typed(given)
    taken_for = meant(found)
    wrong_types = [finding for finding in wrong_types if finding.key in given or finding.key not in taken_for]
    malformed = syntax_findings(values)
    spec = JobSpec.of({**values, **{finding.key: OPTIONS[finding.key].get("default") for finding in malformed}})
    return found + wrong_types + malformed + spec_findings(spec), spec


def top_key(key: str) -> str:
    """The top-level key of a JobSpec that contains a finding's key."""
    return key.partition(".")[0]


def separate_key(finding: Finding) -> str:
    """The smallest part of a JobSpec that can be removed because of a finding: an override or a top-level key."""
    return finding.key if finding.key.startswith(f"{OVERRIDES}.") else top_key(finding.key)


def examinable(findings: Sequence[Finding], given: Any) -> dict[str, Any] | None:
    """A JobSpec without the keys that have findings, so that the gate can check the rest; None if that is impossible.

    The caller drops what the gate reports about the removed keys: it concerns their replacements.
    """
    wrong = {separate_key(finding) for finding in findings}
    if not isinstance(given, Mapping) or wrong & (set(OPTIONS) - SEPARABLE) or "" in wrong:
        return None
    _dummy, values = typed(without_empty(given, OPTIONS))
    harmless = {key: STAND_INS.get(key, OPTIONS[key].get("default")) for key in wrong & set(OPTIONS)}
    overrides = override_list(values["trainer_overrides"])
    rest = [item for item in overrides if f"{OVERRIDES}.{override_key(item)}" not in wrong]
    return without_empty({**values, **harmless, "trainer_overrides": rest}, OPTIONS)
