"""A machine whose engine runs the program of jobs with real commands here, for unit tests of plugins that call it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.argus.verl.plugins.plugin_utils.node_command import Node
from ansible_collections.argus.verl.plugins.plugin_utils.program_call import NodeAction

from argus.archive.archive import Archive

# "exec" runs the program, or refuses; "run" shows its arguments and runs what follows the image.
ENGINE = """#!/bin/sh
case "$1" in
  exec) [ -s "{directory}/refusal" ] && {{ cat "{directory}/refusal" >&2; exit 1; }}
        shift 4; exec {python} {program} "$@" ;;
  image) [ "$3" = here ] ;;
  run) echo "$@" >> "{directory}/runs"; while [ "$1" != here ]; do shift; done; shift 2; exec {python} {program} "$@" ;;
esac
"""


class Connection:
    transport = "ssh"
    become: Any = None

    class _shell:  # noqa: N801
        tmpdir = "/tmp/argus-test"

        @staticmethod
        def join_path(*parts: str) -> str:
            return "/".join(parts)

    @staticmethod
    def exec_command(command: str, in_data: bytes, sudoable: bool) -> tuple[int, bytes, bytes]:
        # With an input, ssh gives no terminal, which would change line ends.
        assert sudoable == bool(Connection.become) == command.startswith("echo BECOME") and in_data
        done = subprocess.run(["sh", "-c", command], input=in_data, capture_output=True, check=False)
        return done.returncode, done.stdout, done.stderr


class Action:
    """Runs commands here, as a machine does."""

    _connection = Connection

    def _low_level_execute_command(self, command: str, in_data: bytes) -> dict[str, Any]:
        # Where both users are the same, Ansible does not escalate, and waits for it if anything has before.
        assert in_data and not (Connection.become and Connection.become.success)
        done = subprocess.run(["sh", "-c", command], input=in_data, capture_output=True, check=False)
        return {"rc": done.returncode, "stdout": done.stdout.decode(), "stderr": done.stderr.decode()}

    def _transfer_file(self, _local: str, _remote: str) -> None:
        pass

    def _fixup_perms2(self, _paths: object) -> None:
        pass


class Caller(Action, NodeAction):
    """An action that does nothing by itself."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def perform(self, arguments: dict[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
        raise NotImplementedError


def node_in(directory: Path) -> Node:
    """A head whose shared root is a directory with the archive of a job sft-1."""
    archive = Archive(directory / "jobs" / "sft-1")
    archive.reserve()
    archive.set_status("RUNNING", workload="sft")
    engine = directory / "engine"
    program = directory / "program.py"
    program.write_text("import sys\nfrom argus.cli import main\nsys.exit(main(sys.argv[1:]))\n")
    engine.write_text(ENGINE.format(directory=directory, python=sys.executable, program=program))
    engine.chmod(0o755)
    root = str(directory)
    return Node("head", "gpu-0", "mvp", str(engine), ("absent", "here"), "5:6", root, root, "http://127.0.0.1:1", root)


def refuse(node: Node, text: str) -> None:
    """Let the engine refuse to run a command in the node."""
    (Path(node.shared_root) / "refusal").write_text(text)
