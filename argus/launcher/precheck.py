# SPDX-License-Identifier: Apache-2.0
"""The check before a trainer starts: whether Python would import verl from the snapshot that the job is to use.

The names with MVP are fixed: users' tools read the module `mvp_marker` of a snapshot, and the lines MVP_PRECHECK_….
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from ..archive.plan import Plan
from ..io.reading import read_marker

# Run by a Python with the trainer's environment and directory.
IMPORT_CHECK = """
import importlib.util, json
specs = [importlib.util.find_spec(name) for name in ("verl", "mvp_marker")]
print(json.dumps([spec and spec.origin for spec in specs]))
"""


def precheck_problem(plan: Plan, environment: Mapping[str, str], print_line: Callable[[str], None]) -> str:
    """Why verl would not be imported from the snapshot of the plan; "" if it would.

    environment: of the trainer. print_line: prints a line into the driver's log.
    """
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_CHECK],
        env=environment,
        cwd=plan.directory or None,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return f"Python cannot search for verl: {done.stderr.strip()}"
    try:
        # An image may print a greeting whenever Python starts: the answer is the last line.
        verl_file, marker_file = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, TypeError, IndexError):
        return f"Python cannot search for verl: it answers {done.stdout[-200:]!r}"
    marker = read_marker(Path(marker_file)) if marker_file else None
    print_line(f"MVP_PRECHECK_VERL_FILE={verl_file}")
    print_line(f"MVP_PRECHECK_MARKER={marker}")
    if not verl_file or not Path(verl_file).is_relative_to(plan.code_path):
        return (
            f"verl would be imported from {verl_file}, not from the snapshot {plan.code_path}; "
            "another entry precedes it on PYTHONPATH"
        )
    if marker != plan.code_id:
        return f"the snapshot's marker is {marker!r}, not {plan.code_id!r}; stage the snapshot again"
    return ""
