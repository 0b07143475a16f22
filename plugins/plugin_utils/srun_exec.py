# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands on a host of a Slurm job, as steps of the job, and why Slurm does not run them."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass

from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import one_line
from ansible_collections.argus.verl.plugins.module_utils.slurm import relay
from ansible_collections.argus.verl.plugins.plugin_utils.engine_exec import as_text

# What srun says of every command that fails, and of a site that binds no CPUs.
NOISE = re.compile(
    rb"^srun: (?:cluster configuration lacks support for cpu binding|error: \S+: task 0: .*)\n?", re.MULTILINE
)
ENDED = re.compile(r"Invalid job id|has expired|Job/step already completing")
# What it says when it ran nothing, or lost the host.
REFUSED = re.compile(r"^(?:(?:srun|slurmstepd\S*): error|argus\.verl): .*$", re.MULTILINE)
RELAY = inspect.getsource(relay)
LONGEST_REASON = 400


@dataclass(frozen=True)
class Place:
    """A host of a job. component: of a heterogeneous job. python: of the host."""

    job: int
    node: str
    component: int | None = None
    python: str = "python3"

    def command(self, shell: str, command: str) -> list[str]:
        """A command line for the controller that runs a command on the host; its input is passed on."""
        part = [] if self.component is None else [f"--het-group={self.component}"]
        where = [f"--jobid={self.job}", *part, "--nodes=1", "--ntasks=1", f"--nodelist={self.node}"]
        # It uses nothing of the host for itself.
        how = ["--overlap", "--cpu-bind=none", "--mem=0", "--quiet", "--chdir=/"]
        passed_on = [self.python, "-I", "-c", RELAY, str(self.job), shell, "-c", command]
        return ["srun", *where, *how, *passed_on]


def refusal(place: Place, code: int, stdout: bytes | str, stderr: bytes | str) -> str:
    """Why Slurm did not run a command, or lost it; empty if it ran, whatever became of the command."""
    if not code or stdout:
        # A module that ran has printed something.
        return ""
    said = as_text(stderr)
    if ENDED.search(said):
        return f"{place.node}: Slurm's job {place.job} has ended. slurm_up.yml asks for another one"
    found = REFUSED.search(said)
    return f"{place.node}: no step in Slurm's job {place.job}: {one_line(found[0])[:LONGEST_REASON]}" if found else ""
