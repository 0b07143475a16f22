# SPDX-License-Identifier: GPL-3.0-or-later
"""The base of action plugins that run a verb (subcommand of `argus`) for a Ray node, or fetch files, on its machine.

The verb runs in the node if that runs, by `docker exec` or as a process of the machine. If the node does not run, a new
container of its image runs the verb, or the machine itself where nodes are processes. The request travels on standard
input as one line of JSON; the answer is JSON on standard output, of limited size, as jobs can change it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ansible.utils.display import Display
from ansible_collections.argus.verl.plugins.module_utils.argus.common.text import one_line, printable, size_text
from ansible_collections.argus.verl.plugins.plugin_utils import streams
from ansible_collections.argus.verl.plugins.plugin_utils.action import Action, Result, failure
from ansible_collections.argus.verl.plugins.plugin_utils.node_command import Node, is_container_down
from ansible_collections.argus.verl.plugins.plugin_utils.program_answer import Answer, ProgramError, parse_answer
from ansible_collections.argus.verl.plugins.plugin_utils.program_archive import upload_program

display = Display()
# The default timeout of a verb. The time that a request makes it wait comes on top.
TIMEOUT_SECONDS = 60
USAGE_EXIT_CODE = 2


@dataclass
class OutputFile:
    """A file on the machine that gets the output of a verb; its answer is then the last line of standard error."""

    path: str
    max_bytes: int
    # Set when the verb has ended, in bytes.
    size: int = 0


class NodeAction(Action):
    """Runs verbs of `argus` in a node, from its machine. No module is sent."""

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
        """Run a verb, and return its answer.

        Raises ProgramError without an answer, and AnsibleConnectionFailure if the machine cannot be reached.
        seconds: the timeout. only_running_node: if the node does not run, nothing else runs the verb. output: for a
        verb whose output is a file. outside_node: the verb does not run in the node, even if the node runs.
        attachment: the path of a file on the machine that follows the request on standard input; "" for none.
        """
        node, arguments = self.node, (*verb.split(), "--json")
        names = ("shared_root", "shared_root_source", "address")
        node_fields = {name: value for name in names if (value := getattr(node, name))}
        request_line = json.dumps({**node_fields, **request}).encode() + b"\n"
        run = partial(self.run_verb_command, stdin=request_line, seconds=seconds, output=output, attachment=attachment)
        if not outside_node:
            code, out, stderr = run(node.in_node_command(*arguments))
            # Python prints nothing and exits with 2 if its program is missing, as after cluster_down.yml.
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
        """The exit code, the answer as JSON, and the standard error of the program."""
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
        """Run a command line on the machine; return its exit code, standard output and standard error.

        stdin: never empty, as ssh would else allocate a terminal, which changes the output.
        """
        result = self._low_level_execute_command(line, in_data=stdin)
        return int(result["rc"]), str(result["stdout"]), str(result["stderr"])

    # The next three methods copy files from the machine.
    def fetch(self, request: Mapping[str, Any], local: str, max_bytes: int, seconds: float) -> Answer:
        """Run the verb fetch, and copy the file that it writes to a path of the controller. Raises as `call_verb` does.

        max_bytes: the limit of the file. If the request was refused, nothing is copied.
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
        """Make an empty file on the machine for the become user, who may not write into the task's directory."""
        code, path, stderr = self.run_on_machine('mktemp "${TMPDIR:-/tmp}/argus-verl-XXXXXXXXXX"')
        if code:
            raise ProgramError(f"{self.node.location.machine} has no room for a temporary file: {one_line(stderr)}")
        return path.strip()

    def run_for_bytes(self, path: str, command: str, _data: bytes | None = None) -> bytes:
        """Run a command as the become user, and return its output as bytes. Raises ProgramError if it fails.

        path: the file of the command, for messages. _data: unused, for streams.fetch_file. The task must not call
        `run_on_machine` afterwards: that skips become when both users are equal, and the connection would wait for it.
        """
        # Not fetch_file() of the connection: it reads as the login user, follows links and waits for FIFOs, with which
        # a job may have replaced the file where nodes are processes. Not `run_on_machine`: it returns text.
        connection, become = self._connection, self._connection.become
        command = become.build_become_command(command, connection._shell) if become else command
        code, stdout, stderr = connection.exec_command(command, in_data=b"\n", sudoable=bool(become))
        if code:
            raise ProgramError(streams.copy_error(self.node.location.machine, path, stderr))
        return bytes(become.strip_become_success(stdout) if become else stdout)

    def verb_result(
        self, verb: str, request: Mapping[str, Any], seconds: float = TIMEOUT_SECONDS, **options: Any
    ) -> Result:
        """Run a verb, show its warnings, and return its result for a task. Raises ProgramError if it was refused."""
        answer = self.call_verb(verb, request, seconds, **options)
        if not answer.accepted:
            raise ProgramError(answer.refusal_text)
        for finding in answer.findings:
            display.warning(printable(finding.problem))
        return {**answer.result, "changed": answer.changed}

    def job_info(self, request: Mapping[str, Any]) -> Result:
        """One job or the latest ones, as the verb `status` and ray_job_info return them."""
        return self.verb_result("status", request, TIMEOUT_SECONDS + float(request.get("wait_timeout", 0)))
