# SPDX-License-Identifier: GPL-3.0-or-later
"""A Ray node, and the command lines with which its machine runs the program `argus` in the node or in its place."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from ansible_collections.argus.verl.plugins.module_utils.argus.common.identity import JOBS_API, identity
from ansible_collections.argus.verl.plugins.module_utils.argus.common.shared_root import DEFAULT_SHARED_ROOT
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.services import ENTER_VARIABLE
from ansible_collections.argus.verl.plugins.module_utils.argus.ray.admission import REGISTRY, REGISTRY_VARIABLE
from ansible_collections.argus.verl.plugins.module_utils.cluster.state import CURRENT, PROGRAM
from ansible_collections.argus.verl.plugins.module_utils.privileges import UNPRIVILEGED
from ansible_collections.argus.verl.plugins.plugin_utils.engine_errors import ContainerLocation
from ansible_collections.argus.verl.plugins.plugin_utils.plan.container import COMMAND_PATH
from ansible_collections.argus.verl.plugins.plugin_utils.plan.podman import KEEP_ID, NO_SELINUX_LABEL
from ansible_collections.argus.verl.plugins.plugin_utils.program_archive import program_name


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
        env = {**identity(self.name, self.cluster, self.shared_root, self.shared_root_source), JOBS_API: self.address}
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
