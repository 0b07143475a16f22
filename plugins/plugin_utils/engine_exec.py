# Copyright (c) 2026, the argus.verl contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands in the container of a node, as its machine runs them, and why it cannot run them."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass

# A shell's exit code for a command that it does not find.
NOT_FOUND = 127
NOT_THERE = r"['\u2019]?: (?:(?:command )?not found|No such file)"


@dataclass(frozen=True)
class Place:
    """A container, its machine, and the program of the engine there."""

    node: str
    machine: str
    engine: str


ABSENT = "there is no container {node} on {machine}. cluster_up.yml starts it"
STOPPED = "container {node} is not running on {machine}. cluster_up.yml starts it"
# How docker and podman begin a line, and what follows for each reason.
SIGNS = {
    r"No such container|no container with name or ID": ABSENT,
    r"Container \S+ is not running|can only create exec sessions on running|cannot exec in a stopped": STOPPED,
    r"Container \S+ is paused": "container {node} is paused on {machine}. Run there: {engine} unpause {node}",
    r"Container \S+ is restarting": "container {node} is restarting on {machine}. Its log tells why",
    r"permission denied while trying to connect": "{node}: the user on {machine} may not use {engine}. Add the user to "
    'the group "{engine}" there, or set ansible_become: true for {machine}',
    r"Cannot connect to the Docker daemon|Cannot connect to Podman": "{node}: {engine} does not answer on {machine}. "
    "Start its daemon there",
}
ENGINE_SAYS = (
    r"^(?:Error: |Error response from daemon: |error during connect: |Got |OCI runtime exec failed: .{0,200})?"
)


def is_down(place: Place, code: int, stdout: str, stderr: str) -> bool:
    """Whether the container does not run, and will not by itself."""
    reason = refusal(place, code, stdout, stderr)
    return reason in (ABSENT.format(**asdict(place)), STOPPED.format(**asdict(place)))


def refusal(place: Place, code: int, stdout: str, stderr: str) -> str:
    """Why the engine did not run a command; empty if it did, whatever became of the command."""
    if not code or stdout:
        # A module that ran has printed something.
        return ""
    for sign, sentence in SIGNS.items():
        if re.search(f"{ENGINE_SAYS}(?:{sign})", stderr, re.MULTILINE | re.IGNORECASE):
            return sentence.format(**asdict(place))
    # What a shell or sudo says.
    if code == NOT_FOUND and re.search(rf"(?:^|[\s'\u2018]){re.escape(place.engine)}{NOT_THERE}", stderr, re.MULTILINE):
        return f"{place.node}: {place.machine} has no command {place.engine}, or not on the PATH of its user"
    return ""
