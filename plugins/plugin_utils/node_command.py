# SPDX-License-Identifier: GPL-3.0-or-later
"""A Ray node, the command lines that run the program `argus` in it or in its place, and why its engine ran none."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from ansible_collections.argus.verl.plugins.module_utils.argus.common.identity import JOBS_API, identity_variables
from ansible_collections.argus.verl.plugins.module_utils.argus.common.shared_root import DEFAULT_SHARED_ROOT
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.services import ENTER_VARIABLE
from ansible_collections.argus.verl.plugins.module_utils.argus.ray.admission import REGISTRY, REGISTRY_VARIABLE
from ansible_collections.argus.verl.plugins.module_utils.cluster.state import CURRENT, PROGRAM
from ansible_collections.argus.verl.plugins.module_utils.privileges import UNPRIVILEGED
from ansible_collections.argus.verl.plugins.plugin_utils.plan.container import COMMAND_PATH, KEEP_ID, NO_SELINUX_LABEL
from ansible_collections.argus.verl.plugins.plugin_utils.program_archive import program_name

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


@dataclass(frozen=True)
class ContainerLocation:
    """A container, its machine, and the program of the engine there. The fields are those of the messages above."""

    node: str
    machine: str
    engine: str


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


@dataclass(frozen=True)
class Node:
    """The node that runs the program: the option `node` of action plugins, as plugins/doc_fragments/node.py has it."""

    name: str
    # The machine's name in messages.
    machine: str = ""
    cluster: str = ""
    # docker, podman, or the path of one.
    engine: str = "docker"
    # If the node does not run, a new container takes its place: of the first of these images that the machine has.
    images: Sequence[str] = ()
    # The user of that container, as uid:gid; "" for the user of Ansible.
    user: str = ""
    # The path of the shared root in the node, and on the machine.
    shared_root: str = DEFAULT_SHARED_ROOT
    shared_root_source: str = ""
    # Of the Jobs API, as the node reaches it; "" for the address in the node's environment.
    address: str = ""
    # The directory on the machine that records the jobs of the cluster; "" for none.
    registry: str = ""
    # Of a node that is a process, its directory on the machine and its Python; "" for a container.
    directory: str = ""
    python: str = ""

    @property
    def location(self) -> ContainerLocation:
        return ContainerLocation(self.name, self.machine or "its machine", self.engine)

    def in_node_command(self, *arguments: str, terminal: bool = False) -> str:
        """The command line that runs the program in the node, which has to run. terminal: whether it needs one."""
        if not self.directory:
            return shlex.join([self.engine, "exec", "-it" if terminal else "-i", self.name, COMMAND_PATH, *arguments])
        state_dir = self.directory.rsplit("/", 2)[0]
        return self.on_machine_command(f"{state_dir}/{PROGRAM}/{CURRENT}", *arguments)

    def on_machine_command(self, program: str, *arguments: str) -> str:
        """The command line that runs the program without a container, with the environment of the node.

        program: the path of its zip file on the machine.
        """
        # The program reads the node's environment from the directory in ENTER_VARIABLE. A removed head has none, so
        # the registry is passed separately.
        enter = f"env {ENTER_VARIABLE}={shlex.quote(self.directory)} {REGISTRY_VARIABLE}={shlex.quote(self.registry)}"
        return f"{enter} {shlex.join([self.python])} {shell_path(program)} {shlex.join(arguments)}"

    def in_new_container_command(self, program: str, *arguments: str) -> str:
        """The command line that runs the program in a new container, which the engine removes afterwards.

        program: the path of its zip file on the machine.
        """
        engine = shlex.quote(self.engine)
        env = {
            **identity_variables(self.name, self.cluster, self.shared_root, self.shared_root_source),
            JOBS_API: self.address,
        }
        run = [self.engine, "run", "--rm", "--interactive", "--network=none", "--pull=never", "--read-only"]
        # Without a log driver: the engine would keep all output, which can be a whole archive.
        run += ["--log-driver=none", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--entrypoint=python3"]
        run += [f"--env={name}={value}" for name, value in env.items()]
        run += [f"--mount=type=bind,source={self.shared_root_source},target={self.shared_root}"]
        run += [f"--mount=type=bind,source={program},target=/{program_name()},readonly"]
        user = shlex.quote(self.user) if self.user else '"$(id -u):$(id -g)"'
        lines = [
            f"chmod 0444 {shlex.quote(program)}",
            f"set -- --user {user}",
            *([] if self.user else [f'[ "$(id -u)" != 0 ] || set -- --user {UNPRIVILEGED}:{UNPRIVILEGED}']),
        ]
        if self.engine.endswith("podman"):
            lines += [f'set -- "$@" --security-opt {NO_SELINUX_LABEL}']
            lines += [f'[ "$(id -u)" = 0 ] || set -- "$@" --userns {KEEP_ID}']
        if self.registry:
            mount = shlex.quote(f"{self.registry}:{REGISTRY}:ro")
            lines += [f'[ ! -d {shlex.quote(self.registry)} ] || set -- "$@" --volume {mount}']
        images = shlex.join(self.images) or "''"
        lines += [f'for image in {images}; do {engine} image inspect "$image" >/dev/null 2>&1 && break; done']
        lines += [f'exec {shlex.join(run)} "$@" "$image" /{program_name()} {shlex.join(arguments)}']
        return f"sh -c {shlex.quote('; '.join(lines))}"


def shell_path(path: str) -> str:
    """A path for a shell, which expands "~" at its beginning."""
    return f"~/{shlex.quote(path[2:])}" if path.startswith("~/") else shlex.quote(path)
