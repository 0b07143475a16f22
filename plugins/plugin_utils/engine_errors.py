# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages for people when the container engine (docker or podman) could not run a command in a node's container."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass

# A shell's exit code for a command that it does not find.
COMMAND_NOT_FOUND = 127
NOT_FOUND_TEXT = r"['\u2019]?: (?:(?:command )?not found|No such file)"


@dataclass(frozen=True)
class ContainerLocation:
    """A container, its machine, and the program of the engine there."""

    node: str
    machine: str
    engine: str


ABSENT_TEXT = "there is no container {node} on {machine}. cluster_up.yml starts it"
STOPPED_TEXT = "container {node} is not running on {machine}. cluster_up.yml starts it"
# By the errors of docker and podman, the message for the user.
ENGINE_ERRORS = {
    r"No such container|no container with name or ID": ABSENT_TEXT,
    r"Container \S+ is not running|can only create exec sessions on running|cannot exec in a stopped": STOPPED_TEXT,
    r"Container \S+ is paused": "container {node} is paused on {machine}. Run there: {engine} unpause {node}",
    r"Container \S+ is restarting": "container {node} is restarting on {machine}. Its log tells why",
    r"permission denied while trying to connect": "{node}: the user on {machine} may not use {engine}. Add the user to "
    'the group "{engine}" there, or set ansible_become: true for {machine}',
    r"Cannot connect to the Docker daemon|Cannot connect to Podman": "{node}: {engine} does not answer on {machine}. "
    "Start its daemon there",
}
ENGINE_PREFIX = (
    r"^(?:Error: |Error response from daemon: |error during connect: |Got |OCI runtime exec failed: .{0,200})?"
)


def is_container_down(location: ContainerLocation, code: int, stdout: str, stderr: str) -> bool:
    """Whether the container does not run, and will not start by itself."""
    reason = engine_error(location, code, stdout, stderr)
    return reason in [text.format(**asdict(location)) for text in (ABSENT_TEXT, STOPPED_TEXT)]


def engine_error(location: ContainerLocation, code: int, stdout: str, stderr: str) -> str:
    """Why the engine did not run a command; empty if it did, whatever became of the command."""
    if not code or stdout:
        # A module that ran has printed something.
        return ""
    for pattern, sentence in ENGINE_ERRORS.items():
        if re.search(f"{ENGINE_PREFIX}(?:{pattern})", stderr, re.MULTILINE | re.IGNORECASE):
            return sentence.format(**asdict(location))
    # The message of a shell or sudo.
    engine = re.escape(location.engine)
    if code == COMMAND_NOT_FOUND and re.search(rf"(?:^|[\s'\u2018]){engine}{NOT_FOUND_TEXT}", stderr, re.MULTILINE):
        return f"{location.node}: {location.machine} has no command {location.engine}, or not on the PATH of its user"
    return ""
