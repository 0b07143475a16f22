# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs subcommands of `argus` (verbs) in a node, through a shell command on its machine (`docker exec` or a process).

A request travels on standard input. Jobs can change what comes out of a node: the answer is bounded, and only its
documented keys are used. If the node does not run, a container of its image runs the program, and ends with the answer;
without containers, the machine runs it.

A verb may write a file instead. The file lies on the machine until it is fetched, and the answer is the last line on
standard error.
"""

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
from ansible_collections.argus.verl.plugins.module_utils.argus.common.identity import JOBS_API, identity_variables
from ansible_collections.argus.verl.plugins.module_utils.argus.common.shared_root import DEFAULT_SHARED_ROOT
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import one_line, printable, size_text
from ansible_collections.argus.verl.plugins.module_utils.argus.jobs.services import ENTER_VARIABLE
from ansible_collections.argus.verl.plugins.module_utils.argus.ray.admission import REGISTRY, REGISTRY_VARIABLE
from ansible_collections.argus.verl.plugins.module_utils.cluster.state import CURRENT, PROGRAM
from ansible_collections.argus.verl.plugins.module_utils.privileges import UNPRIVILEGED
from ansible_collections.argus.verl.plugins.plugin_utils import streams
from ansible_collections.argus.verl.plugins.plugin_utils.action import Action, Result, failure
from ansible_collections.argus.verl.plugins.plugin_utils.plan.container import COMMAND_PATH, KEEP_ID, NO_SELINUX_LABEL
from ansible_collections.argus.verl.plugins.plugin_utils.program_archive import program_archive, program_name

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


display = Display()
# The default timeout of a verb, besides the time that it was asked to wait.
TIMEOUT_SECONDS = 60
USAGE_EXIT_CODE = 2
# How Python, Ray and shells say that they could not start a process or a thread.
NO_MORE_PROCESSES = "Resource temporarily unavailable"
USAGE_KEY = "usage"  # The key of findings about a malformed request.


class ProgramError(Exception):
    """The program gave no answer; the message says why. may_answer_later: as when the node has ended."""

    def __init__(self, message: str, may_answer_later: bool = False) -> None:
        super().__init__(printable(message))
        self.may_answer_later = may_answer_later


@dataclass(frozen=True)
class Answer:
    """The answer of a verb. accepted: whether the request was not refused."""

    accepted: bool
    changed: bool
    findings: Sequence[Finding]
    result: Mapping[str, Any]

    @property
    def refusal_text(self) -> str:
        """Why the request was refused."""
        return "; ".join(finding.problem for finding in self.findings)


@dataclass
class OutputFile:
    """A file on the machine for the output of a verb. max_bytes: its limit. size: its bytes when the verb has ended."""

    path: str
    max_bytes: int
    size: int = 0


@dataclass(frozen=True)
class Node:
    """The node that runs the program.

    machine: its name in messages.
    directory, python: those of a node without a container.
    shared_root, address: the path of the shared root and the address of the Jobs API, as the node sees them.
    registry: the directory on the machine that records the jobs of the cluster.
    cluster, images, user, shared_root_source: for a container of the first image present if the node does not run.
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
    def location(self) -> ContainerLocation:
        return ContainerLocation(self.name, self.machine or "its machine", self.engine)

    def in_node_command(self, *arguments: str, terminal: bool = False) -> str:
        """The command line for the machine, which runs the program in the node."""
        if not self.directory:
            return shlex.join([self.engine, "exec", "-it" if terminal else "-i", self.name, COMMAND_PATH, *arguments])
        state_dir = self.directory.rsplit("/", 2)[0]
        return self.on_machine_command(f"{state_dir}/{PROGRAM}/{CURRENT}", *arguments)

    def on_machine_command(self, program: str, *arguments: str) -> str:
        """The command line that runs a file of the program on the machine, with the environment of the node."""
        # argus reads the node's environment from the directory in ENTER_VARIABLE. That of a removed head is gone, so
        # the registry is passed separately.
        enter = f"env {ENTER_VARIABLE}={shlex.quote(self.directory)} {REGISTRY_VARIABLE}={shlex.quote(self.registry)}"
        return f"{enter} {shlex.join([self.python])} {shell_path(program)} {shlex.join(arguments)}"

    def in_new_container_command(self, program: str, *arguments: str) -> str:
        """The command line that runs a file of the program in a container of its own, which the engine removes."""
        engine = shlex.quote(self.engine)
        env = {
            **identity_variables(self.name, self.cluster, self.shared_root, self.shared_root_source),
            JOBS_API: self.address,
        }
        run = [self.engine, "run", "--rm", "--interactive", "--network=none", "--pull=never", "--read-only"]
        # Engines keep what a container prints, and would keep a whole archive.
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


def upload_program(action: ActionBase) -> str:
    """The path of the program on the machine, in the temporary directory of this task."""
    shell = action._connection._shell
    if not shell.tmpdir:
        action._make_tmp_path()
    path: str = shell.join_path(shell.tmpdir, program_name())
    action._transfer_file(str(program_archive()), path)
    action._fixup_perms2((shell.tmpdir, path))
    return path


def parse_answer(node: Node, verb: str, code: int, out: str, stderr: str) -> Answer:
    """The answer that a verb has printed. Raises ProgramError without one."""
    if reason := "" if node.directory else engine_error(node.location, code, out, stderr):
        raise ProgramError(reason, may_answer_later=True)
    try:
        content = json.loads(out)
        findings = [Finding(**finding) for finding in content["findings"]]
        result = {name: value for name, value in content["result"].items() if not streams.is_acted_on(name)}
        changed = content["changed"] is True
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        reason = one_line(stderr) or f"exit code {code}"
        if NO_MORE_PROCESSES in stderr:
            reason = "the node reached its limit of processes and threads"
        # Whatever ends a node ends the program in it, before it has printed anything.
        raise ProgramError(f"argus {verb} on {node.name} gave no answer ({reason})", may_answer_later=not out) from None
    for finding in findings:
        if finding.key == USAGE_KEY:
            # This version never sends such a request, so the other side is of another version.
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
            return failure(error)

    def arguments(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        arguments = super().arguments(variables)
        # By default, the node with the name of the host.
        self.node = Node(**(arguments.pop("node") or {"name": str(variables.get("inventory_hostname", ""))}))
        return arguments

    def call_verb(
        self,
        verb: str,
        request: Mapping[str, Any],
        seconds: float = TIMEOUT_SECONDS,
        only_running_node: bool = False,
        output: OutputFile | None = None,
        outside_node: bool = False,
        attachment: str = "",
    ) -> Answer:
        """Run a verb, and return its answer. Raises ProgramError, and AnsibleConnectionFailure without the machine.

        only_running_node: run the verb only by a running node. output: where its output goes if it is not its answer.
        outside_node: run it beside the node, whatever the state of that is. attachment: a file on the machine, which
        follows the line of the request on standard input.
        """
        node, arguments = self.node, (*verb.split(), "--json")
        names = ("shared_root", "shared_root_source", "address")
        paths = {name: path for name in names if (path := getattr(node, name))}
        request_line = json.dumps({**paths, **request}).encode() + b"\n"
        run = partial(self.run_verb_command, stdin=request_line, seconds=seconds, output=output, attachment=attachment)
        if not outside_node:
            code, out, stderr = run(node.in_node_command(*arguments))
            # As after cluster_down: the machine has no program.
            is_uninstalled = code == USAGE_EXIT_CODE and not out
            is_node_down = is_uninstalled if node.directory else is_container_down(node.location, code, out, stderr)
            outside_node = is_node_down and not only_running_node
        if outside_node:
            command_of = node.on_machine_command if node.directory else node.in_new_container_command
            code, out, stderr = run(command_of(upload_program(self), *arguments))
        return parse_answer(node, verb, code, out, stderr)

    def run_verb_command(
        self, command: str, stdin: bytes, seconds: float, output: OutputFile | None, attachment: str
    ) -> tuple[int, str, str]:
        """The exit code, the answer and the errors of the program."""
        max_bytes = output.max_bytes + 1 if output else streams.MAX_OUTPUT_BYTES
        line = streams.limited_command(command, int(seconds), max_bytes=max_bytes)
        if attachment:
            line = f"{{ cat; cat {shlex.quote(attachment)}; }} | ({line})"
        if not output:
            return self.run_on_machine(line, stdin)
        path = shlex.quote(output.path)
        code, size, stderr = self.run_on_machine(f"({line}) >{path}; code=$?; stat -c %s {path}; exit $code", stdin)
        output.size = int(size) if size.strip().isdigit() else 0
        if output.size > output.max_bytes:
            raise ProgramError(f"the program has written more than {size_text(output.max_bytes)}")
        return code, next((line for line in reversed(stderr.splitlines()) if line.startswith("{")), ""), stderr

    def run_on_machine(self, line: str, stdin: bytes = b"\n") -> tuple[int, str, str]:
        """Run a command line on the machine. With an input, ssh gives no terminal, which would change what is read."""
        result = self._low_level_execute_command(line, in_data=stdin)
        return int(result["rc"]), str(result["stdout"]), str(result["stderr"])

    def fetch(self, request: Mapping[str, Any], local: str, max_bytes: int, seconds: float) -> Answer:
        """Run the verb fetch, whose output is a file, and copy that to a path of the controller, if it was not refused.

        max_bytes: the limit of the file. Raises as `call_verb` does.
        """
        output = OutputFile(self.make_temp_file(), max_bytes)
        try:
            answer = self.call_verb("fetch", request, seconds, output=output)
            if answer.accepted:
                streams.fetch_file(partial(self.run_for_bytes, output.path), output.path, local, output.size)
                if Path(local).stat().st_size != output.size:
                    changed = f"another process has changed {output.path}; fetch again"
                    raise ProgramError(f"{self.node.location.machine}: {changed}")
            return answer
        finally:
            self.run_for_bytes(output.path, f"rm -f {shlex.quote(output.path)}")

    def make_temp_file(self) -> str:
        """The path of an empty file on the machine. In the task's directory, another user (become) may not write."""
        code, path, stderr = self.run_on_machine('mktemp "${TMPDIR:-/tmp}/argus-verl-XXXXXXXXXX"')
        if code:
            raise ProgramError(f"{self.node.location.machine} has no room for a temporary file: {one_line(stderr)}")
        return path.strip()

    def run_for_bytes(self, path: str, command: str, _data: bytes | None = None) -> bytes:
        """The output of a command on a file of the machine as bytes. Raises ProgramError.

        fetch_file() of the connection runs as the login user, not the become user, follows links and waits for FIFOs,
        with which a job may have replaced the file where nodes are processes. `run_on_machine` returns text. It must
        not follow: it skips become when both users are equal, for which the connection would then wait.
        """
        connection, become = self._connection, self._connection.become
        command = become.build_become_command(command, connection._shell) if become else command
        code, stdout, stderr = connection.exec_command(command, in_data=b"\n", sudoable=bool(become))
        if code:
            raise ProgramError(streams.copy_error(self.node.location.machine, path, stderr))
        return bytes(become.strip_become_success(stdout) if become else stdout)

    def verb_result(
        self, verb: str, request: Mapping[str, Any], seconds: float = TIMEOUT_SECONDS, **options: Any
    ) -> Result:
        """The result of a verb for a task; warnings are shown. Raises ProgramError if the request was refused."""
        answer = self.call_verb(verb, request, seconds, **options)
        if not answer.accepted:
            raise ProgramError(answer.refusal_text)
        for finding in answer.findings:
            display.warning(printable(finding.problem))
        return {**answer.result, "changed": answer.changed}

    def job_info(self, request: Mapping[str, Any]) -> Result:
        """One job, or the latest ones, as ray_job_info returns them."""
        return self.verb_result("status", request, TIMEOUT_SECONDS + float(request.get("wait_timeout", 0)))
