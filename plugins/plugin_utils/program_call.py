# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs verbs of the program argus in a node, by a command on the node's machine, and reads the answer."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.findings import Finding
from ansible_collections.argus.verl.plugins.module_utils.argus.common.identity import JOBS_API, identity
from ansible_collections.argus.verl.plugins.module_utils.argus.common.shared_root import DEFAULT_SHARED_ROOT
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import one_line, printable, size_text
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.services import ENTER_VARIABLE
from ansible_collections.argus.verl.plugins.module_utils.argus.ray.admission import REGISTRY, REGISTRY_VARIABLE
from ansible_collections.argus.verl.plugins.module_utils.cluster.state import CURRENT, PROGRAM
from ansible_collections.argus.verl.plugins.module_utils.privileges import UNPRIVILEGED
from ansible_collections.argus.verl.plugins.plugin_utils import streams
from ansible_collections.argus.verl.plugins.plugin_utils.action import Action, Result, failed
from ansible_collections.argus.verl.plugins.plugin_utils.plan.container import COMMAND_PATH, KEEP_ID, NO_SELINUX_LABEL
from ansible_collections.argus.verl.plugins.plugin_utils.program_archive import program_archive, program_name

# Commands in the container of a node: why the engine of its machine did not run them.

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
# By the errors of docker and podman, the message for the user.
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
ENGINE_PREFIX = (
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
        if re.search(f"{ENGINE_PREFIX}(?:{sign})", stderr, re.MULTILINE | re.IGNORECASE):
            return sentence.format(**asdict(place))
    # The message of a shell or sudo.
    if code == NOT_FOUND and re.search(rf"(?:^|[\s'\u2018]){re.escape(place.engine)}{NOT_THERE}", stderr, re.MULTILINE):
        return f"{place.node}: {place.machine} has no command {place.engine}, or not on the PATH of its user"
    return ""


# A request travels on standard input. Jobs can change what comes out of a node: the answer is bounded, and only its
# documented keys are used. If the node does not run, the program is run by a container of its image that ends with
# the answer; without containers, directly.
#
# The output of a verb may be a file instead. It lies on the machine until it is fetched, and the answer is the last
# line of the errors.

display = Display()
# How many seconds a verb may take beyond those that it was asked to wait.
SECONDS = 60
WRONG_USAGE = 2
# How Python, Ray and shells say that they could not start a process or a thread.
NO_MORE_PROCESSES = "Resource temporarily unavailable"
# The place of findings that are about the program, and not about a job.
PROGRAM_ITSELF = "argus"
# The key of a finding about wrong usage.
USAGE = "usage"


class ProgramError(Exception):
    """The program gave no answer; the message says why. node_is_gone: it may answer later."""

    def __init__(self, message: str, node_is_gone: bool = False) -> None:
        super().__init__(printable(message))
        self.node_is_gone = node_is_gone


@dataclass(frozen=True)
class Answer:
    """The answer of a verb. done: whether the verb was not refused."""

    done: bool
    changed: bool
    findings: Sequence[Finding]
    result: Mapping[str, Any]

    @property
    def reasons(self) -> str:
        """Why it was refused."""
        return "; ".join(finding.problem for finding in self.findings)


@dataclass
class Output:
    """The file on the machine that gets the output of a verb: its path, largest size, and size in the end, in bytes."""

    path: str
    most: int
    size: int = 0


@dataclass(frozen=True)
class Node:
    """The node that runs the program.

    machine: for messages. cluster, images, user, shared_root_source, registry: for a container in place of a node that
    does not run; the first image that the machine has is used. directory, python: of a node without a container.
    shared_root, address: the shared root and the Jobs API as the node sees them.
    """

    name: str
    machine: str = ""
    cluster: str = ""
    engine: str = "docker"
    images: Sequence[str] = ()
    user: str = ""
    shared_root: str = DEFAULT_SHARED_ROOT
    shared_root_source: str = ""
    address: str = ""
    registry: str = ""
    directory: str = ""
    python: str = ""

    @property
    def place(self) -> Place:
        return Place(self.name, self.machine or "its machine", self.engine)

    def command(self, *arguments: str, terminal: bool = False) -> str:
        """The command line for the machine that runs the program in the node."""
        if not self.directory:
            return shlex.join([self.engine, "exec", "-it" if terminal else "-i", self.name, COMMAND_PATH, *arguments])
        state = self.directory.rsplit("/", 2)[0]
        return self.direct(f"{state}/{PROGRAM}/{CURRENT}", *arguments)

    def direct(self, program: str, *arguments: str) -> str:
        """The command line that runs a file of the program with the environment of the node."""
        # The registry is that of a head which has been removed, and its environment with it.
        enter = f"env {ENTER_VARIABLE}={shlex.quote(self.directory)} {REGISTRY_VARIABLE}={shlex.quote(self.registry)}"
        return f"{enter} {shlex.join([self.python])} {shell_path(program)} {shlex.join(arguments)}"

    def apart(self, program: str, *arguments: str) -> str:
        """The command line that runs a file of the program in a container that is no node."""
        engine = shlex.quote(self.engine)
        environ = identity(self.name, self.cluster, self.shared_root, self.shared_root_source) | {
            JOBS_API: self.address
        }
        run = [self.engine, "run", "--rm", "--interactive", "--network=none", "--pull=never", "--read-only"]
        # Engines keep what a container prints, and would keep a whole archive.
        run += ["--log-driver=none", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--entrypoint=python3"]
        run += [f"--env={name}={value}" for name, value in environ.items()]
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


def upload_program(action: ActionBase) -> str:
    """The path of the program on the machine, in the temporary directory of this task."""
    shell = action._connection._shell
    if not shell.tmpdir:
        action._make_tmp_path()
    path: str = shell.join_path(shell.tmpdir, program_name())
    action._transfer_file(str(program_archive()), path)
    action._fixup_perms2((shell.tmpdir, path))
    return path


def answer(node: Node, verb: str, code: int, out: str, error: str) -> Answer:
    """The answer that a verb has printed."""
    if reason := "" if node.directory else refusal(node.place, code, out, error):
        raise ProgramError(reason, node_is_gone=True)
    try:
        content = json.loads(out)
        findings = [Finding(**finding) for finding in content["findings"]]
        result = {name: value for name, value in content["result"].items() if not streams.is_acted_on(name)}
        changed = content["changed"] is True
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        reason = one_line(error) or f"exit code {code}"
        if NO_MORE_PROCESSES in error:
            reason = "the node reached its limit of processes and threads"
        # Whatever ends a node ends the program in it, before it has printed anything.
        raise ProgramError(f"argus {verb} on {node.name} gave no answer ({reason})", node_is_gone=not out) from None
    for finding in findings:
        if finding.key == USAGE:
            # The request is right for the program of this version.
            remedy = "Its machine may have another version of the program, and cluster_up.yml brings this one"
            raise ProgramError(f"argus {verb} on {node.name}: {finding.problem}. {remedy}")
    return Answer(code == 0, changed, findings, result)


class NodeAction(Action):
    """Runs verbs of the program in a node, from its machine. No module is sent."""

    _requires_connection = True
    node: Node

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> Result:
        try:
            return super().run(tmp, task_vars)
        except ProgramError as error:
            return failed(error)

    def arguments(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        arguments = super().arguments(variables)
        # By default, the node with the name of the host.
        self.node = Node(**(arguments.pop("node") or {"name": str(variables.get("inventory_hostname", ""))}))
        return arguments

    def call(
        self,
        verb: str,
        request: Mapping[str, Any],
        seconds: float = SECONDS,
        needs_node: bool = False,
        output: Output | None = None,
        apart: bool = False,
        attachment: str = "",
    ) -> Answer:
        """Run a verb, and return its answer. Raises ProgramError, and AnsibleConnectionFailure without the machine.

        needs_node: whether the verb is run by a node that runs only. output: where its output goes if it is not its
        answer. apart: run it beside the node, whatever the state of that is. attachment: a file on the machine, which
        follows the line of the request on standard input.
        """
        node, arguments = self.node, (*verb.split(), "--json")
        paths = {name: getattr(node, name) for name in ("shared_root", "shared_root_source", "address")}
        text = json.dumps({**{name: value for name, value in paths.items() if value}, **request}).encode() + b"\n"
        execute_verb = partial(self.execute_verb, text=text, seconds=seconds, output=output, attachment=attachment)
        if not apart:
            code, out, error = execute_verb(node.command(*arguments))
            # As after cluster_down: the machine has no program.
            has_no_program = bool(node.directory) and code == WRONG_USAGE and not out
            is_gone = has_no_program or (not node.directory and is_down(node.place, code, out, error))
            apart = is_gone and not needs_node
        if apart:
            command_of = node.direct if node.directory else node.apart
            code, out, error = execute_verb(command_of(upload_program(self), *arguments))
        return answer(node, verb, code, out, error)

    def execute_verb(
        self, command: str, text: bytes, seconds: float, output: Output | None, attachment: str
    ) -> tuple[int, str, str]:
        """The exit code, the answer and the errors of the program."""
        most = output.most + 1 if output else streams.MOST_OUTPUT
        line = streams.limited_command(command, int(seconds), most=most)
        if attachment:
            line = f"{{ cat; cat {shlex.quote(attachment)}; }} | ({line})"
        if not output:
            return self.execute(line, text)
        path = shlex.quote(output.path)
        code, size, error = self.execute(f"({line}) >{path}; code=$?; stat -c %s {path}; exit $code", text)
        output.size = int(size) if size.strip().isdigit() else 0
        if output.size > output.most:
            raise ProgramError(f"the program has written more than {size_text(output.most)}")
        return code, next((line for line in reversed(error.splitlines()) if line.startswith("{")), ""), error

    def execute(self, line: str, text: bytes = b"\n") -> tuple[int, str, str]:
        """Run a command line on the machine. With an input, ssh gives no terminal, which would change what is read."""
        result = self._low_level_execute_command(line, in_data=text)
        return int(result["rc"]), str(result["stdout"]), str(result["stderr"])

    def fetch(self, request: Mapping[str, Any], local: str, most: int, seconds: float) -> Answer:
        """Run the verb fetch, whose output is a file, and copy that to a path of the controller, if it was not refused.

        most: how many bytes the file has at most. Raises as `call` does.
        """
        output = Output(self.new_file(), most)
        try:
            answer = self.call("fetch", request, seconds, output=output)
            if answer.done:
                streams.fetch_file(partial(self.read, output.path), output.path, local, output.size)
                if Path(local).stat().st_size != output.size:
                    changed = f"another process has changed {output.path}; fetch again"
                    raise ProgramError(f"{self.node.place.machine}: {changed}")
            return answer
        finally:
            self.read(output.path, f"rm -f {shlex.quote(output.path)}")

    def new_file(self) -> str:
        """The path of an empty file on the machine. In the task's directory, another user (become) may not write."""
        code, path, error = self.execute('mktemp "${TMPDIR:-/tmp}/argus-verl-XXXXXXXXXX"')
        if code:
            raise ProgramError(f"{self.node.place.machine} has no room for a temporary file: {one_line(error)}")
        return path.strip()

    def read(self, path: str, command: str, _data: bytes | None = None) -> bytes:
        """The output of a command on a file of the machine as bytes. Raises ProgramError.

        The connection's own fetch_file is not the user who has written the file (become), and would follow a link and
        wait for a FIFO, by which a job may have replaced the file where nodes are processes. `execute` makes text of
        it. It may not be called any more: with one user, it omits the escalation for which the connection then waits.
        """
        connection, become = self._connection, self._connection.become
        command = become.build_become_command(command, connection._shell) if become else command
        code, stdout, stderr = connection.exec_command(command, in_data=b"\n", sudoable=bool(become))
        if code:
            raise ProgramError(streams.copy_error(self.node.place.machine, path, stderr))
        return bytes(become.strip_become_success(stdout) if become else stdout)

    def ask(self, verb: str, request: Mapping[str, Any], seconds: float = SECONDS, **options: Any) -> Result:
        """What a verb returns, as the result of a task; warnings are shown. Raises ProgramError if it was refused."""
        answer = self.call(verb, request, seconds, **options)
        if not answer.done:
            raise ProgramError(answer.reasons)
        for finding in answer.findings:
            display.warning(printable(finding.problem))
        return {**answer.result, "changed": answer.changed}

    def job_info(self, request: Mapping[str, Any]) -> Result:
        """One job, or the latest ones, as ray_job_info returns them."""
        return self.ask("status", request, SECONDS + float(request.get("wait_timeout", 0)))
