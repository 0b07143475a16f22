# SPDX-License-Identifier: GPL-3.0-or-later
"""Why `docker exec` or `podman exec` did not run a command in a node's container, as a message for people."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class ContainerLocation:
    """A container, its machine, and the program of the engine there. The fields are those of the messages below."""

    node: str
    machine: str
    engine: str


ABSENT_TEXT = "there is no container {node} on {machine}. cluster_up.yml starts it"
STOPPED_TEXT = "container {node} is not running on {machine}. cluster_up.yml starts it"
NO_ENGINE_TEXT = "{node}: {machine} has no command {engine}, or not on the PATH of its user"
# The errors of docker and podman as patterns, with the message for people.
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
# What stands before an error on its line.
ENGINE_PREFIX = (
    r"^(?:Error: |Error response from daemon: |error during connect: |Got |OCI runtime exec failed: .{0,200})?"
)
# The exit code of a shell that does not find a command, and its message or that of sudo after the command.
COMMAND_NOT_FOUND = 127
NOT_FOUND_TEXT = r"['\u2019]?: (?:(?:command )?not found|No such file)"


def is_container_down(location: ContainerLocation, code: int, stdout: str, stderr: str) -> bool:
    """Whether the container does not run, and will not start by itself."""
    return matching_text(location.engine, code, stdout, stderr) in (ABSENT_TEXT, STOPPED_TEXT)


def engine_error(location: ContainerLocation, code: int, stdout: str, stderr: str) -> str:
    """The message why the engine did not run a command; "" if it ran the command, even if that failed."""
    return matching_text(location.engine, code, stdout, stderr).format(**asdict(location))


def matching_text(engine: str, code: int, stdout: str, stderr: str) -> str:
    """The text, with places for a ContainerLocation, that fits the output of the engine; "" if it ran the command."""
    if not code or stdout:
        # A command that ran has printed something.
        return ""
    for pattern, sentence in ENGINE_ERRORS.items():
        if re.search(f"{ENGINE_PREFIX}(?:{pattern})", stderr, re.MULTILINE | re.IGNORECASE):
            return sentence
    engine = re.escape(engine)
    if code == COMMAND_NOT_FOUND and re.search(rf"(?:^|[\s'\u2018]){engine}{NOT_FOUND_TEXT}", stderr, re.MULTILINE):
        return NO_ENGINE_TEXT
    return ""
