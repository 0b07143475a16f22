# SPDX-License-Identifier: GPL-3.0-or-later
"""X"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import one_line, printable, size_text
from ansible_collections.argus.verl.plugins.plugin_utils import command_output, file_copy
from ansible_collections.argus.verl.plugins.plugin_utils.action import Action, Result, failure
from ansible_collections.argus.verl.plugins.plugin_utils.engine_errors import is_container_down
from ansible_collections.argus.verl.plugins.plugin_utils.node_command import Node
from ansible_collections.argus.verl.plugins.plugin_utils.program_answer import Answer, ProgramError, parse_answer
from ansible_collections.argus.verl.plugins.plugin_utils.program_archive import program_archive, program_name

display = Display()
# The default timeout of a verb, besides the time that it was asked to wait.
TIMEOUT_SECONDS = 60
USAGE_EXIT_CODE = 2


@dataclass
class OutputFile:
    """A file on the machine for the output of a verb. max_bytes: its limit. size: its bytes when the verb has ended."""

    path: str
    max_bytes: int
    size: int = 0


def upload_program(action: ActionBase) -> str:
    """The path of the program on the machine, in the temporary directory of this task."""
    shell = action._connection._shell
    if not shell.tmpdir:
        action._make_tmp_path()
    path: str = shell.join_path(shell.tmpdir, program_name())
    action._transfer_file(str(program_archive()), path)
    action._fixup_perms2((shell.tmpdir, path))
    return path


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
        max_bytes = output.max_bytes + 1 if output else command_output.MAX_OUTPUT_BYTES
        line = command_output.limited_command(command, int(seconds), max_bytes=max_bytes)
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
                file_copy.fetch_file(partial(self.run_for_bytes, output.path), output.path, local, output.size)
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
            raise ProgramError(file_copy.copy_error(self.node.location.machine, path, stderr))
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
