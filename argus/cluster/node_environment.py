# SPDX-License-Identifier: Apache-2.0
"""The environment of a node without a container: what the inventory sets, and in a step of Slurm what that step has."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from ..common.node_process import MARK_VARIABLE

# Set in every step of Slurm.
SLURM_JOB_VARIABLE = "SLURM_JOB_ID"
# The variables of a step that a node does not get: Slurm's own, which change how libraries behave, and those of shells,
# of `module` and of the user. A node gets the others, such as those that select GPUs.
NOT_INHERITED = re.compile(
    r"""(SLURM|SRUN|SBATCH|PMI|BASH|LMOD|_*MODULE|ANSIBLE|ARGUS)\w*(%%|\(\))?|_LM\w*|LOADEDMODULES|_|SHELL|SHLVL|(OLD)?PWD
    |ENVIRONMENT|TERM\w*|HOSTNAME|HOME|USER|LOGNAME|LC_\w+|PATH""",
    re.VERBOSE,
)


def with_slurm_step(node_environment: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a node, with the variables of the step if `environ`, that of this process, is of a step."""
    if SLURM_JOB_VARIABLE not in environ:
        return dict(node_environment)
    # The directory of Ray's own Python stays the first.
    first, *rest = node_environment.get("PATH", "").split(os.pathsep)
    path = os.pathsep.join(dict.fromkeys([first, *environ.get("PATH", "").split(os.pathsep), *rest]))
    step = {name: text for name, text in environ.items() if not NOT_INHERITED.fullmatch(name)}
    if not Path(step.get("TMPDIR", "/")).is_dir():
        # The value may be a directory of the host from which the job of Slurm was submitted.
        del step["TMPDIR"]
    return {**step, **node_environment, "PATH": path}


def export_script(environment: Mapping[str, str]) -> str:
    """A script that sets the environment of a node in a shell of people, without the mark of the node's processes."""
    lines = (
        f"export {name}={shlex.quote(value)}\n" for name, value in sorted(environment.items()) if name != MARK_VARIABLE
    )
    return "# The environment of this node: `. environment.sh`, and then `ray status`.\n" + "".join(lines)
