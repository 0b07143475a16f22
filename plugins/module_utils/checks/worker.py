# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of the gate that looks at the things themselves: data, model, reward, packages and space, on the nodes.

It travels into Ray tasks by value, where there is neither Ansible nor this collection. So it imports nothing of
either, of the image's packages only what a check needs and inside of it, and a finding is a mapping with the keys of
``findings.Finding``. Of data and weights it reads footers, headers and a few rows.

A request is a mapping:

shared_root, workload, code_path, model, dataset: as in the JobSpec; all paths are absolute.
reward: the file and the function, or None.
environment: the environment variables of the job.
files: what has to be there on every node: paths, or a mapping of paths to their sizes on the head (None: any).
accept: checks whose errors the user takes as warnings: "requirements", "space".
config: the composed Hydra configuration of the job, or None when it is not known; then less is checked.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from .common import WARNING, finding, one_line
from .dataset import data_findings
from .model import model_findings
from .packages import requirement_findings
from .reward import reward_findings
from .space import space_findings


def check_worker(request: Mapping[str, Any]) -> dict[str, Any]:
    """All that is wrong with data, model, reward, packages and space, and what is known of them.

    Facts, absent or None where they are unknown: train_rows, val_rows, data_sources (of the rows looked at);
    model_bytes, parameters, critic_parameters; versions (of what verl declares: None is not installed); free_bytes,
    steps, checkpoint_bytes (one checkpoint), checkpoints_kept, checkpoint_space (all that are kept); seconds (a check).
    """
    found: list[dict[str, str]] = []
    facts: dict[str, Any] = {"parameters": None}
    for where, check in (
        ("dataset", data_findings),
        ("model", model_findings),
        ("reward_fn_path", reward_findings),
        ("code_path", requirement_findings),
        ("shared_root", space_findings),
    ):
        started = time.monotonic()
        try:
            found += check(request, facts)
        except Exception as error:
            # A file of a kind that nobody has thought of must not keep a good job away.
            what = f"could not be checked: {type(error).__name__}: {one_line(error)}"
            found.append(finding(where, what, "report it; the job itself may be well", WARNING))
        facts.setdefault("seconds", {})[where] = round(time.monotonic() - started, 3)
    return {"findings": found, "facts": facts}
