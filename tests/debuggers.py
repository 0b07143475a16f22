"""Clients of Ray's two debuggers: of the debug adapter protocol, as an editor is one, and `ray debug` in a terminal."""

from __future__ import annotations

import itertools
import json
import os
import pty
import re
import select
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from system import HEAD, on_node

# Lists workers with a thread that waits, as the editor's extension does.
WAITING = """
import json, time
from ray.util.state import list_workers
end = time.monotonic() + 240
while time.monotonic() < end:
    found = [worker for worker in list_workers(detail=True, limit=1000) if worker.num_paused_threads]
    if found:
        print(json.dumps([found[0].ip, found[0].debugger_port]))
        break
    time.sleep(0.5)
"""
SECONDS = 120


def waiting() -> tuple[str, int]:
    """The address at which a worker waits for a debugger, as soon as one does."""
    host, port = json.loads(on_node(HEAD, "python3", "-c", WAITING).splitlines()[-1])
    return str(host), int(port)


class Debugger:
    """Attached to a process that waits for a debugger, until it stops; at the end it is let go."""

    def __init__(self, host: str, port: int) -> None:
        self.connection = socket.create_connection((host, port), timeout=60)
        self.stream = self.connection.makefile("rb")
        self.numbers = itertools.count(1)
        self.ask("initialize", adapterID="debugpy", clientID="tests", pathFormat="path")
        # Answered after configurationDone.
        attaching = self.send("attach", justMyCode=False)
        self.event("initialized")
        # The filter that editors set without being asked: without one, a client never stops at an exception.
        self.ask("setExceptionBreakpoints", filters=["uncaught"])
        self.ask("configurationDone")
        self.answer(attaching)
        self.stopped = self.event("stopped")

    def __enter__(self) -> Debugger:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.connection.close()

    def send(self, command: str, **arguments: Any) -> int:
        number = next(self.numbers)
        text = json.dumps({"seq": number, "type": "request", "command": command, "arguments": arguments}).encode()
        self.connection.sendall(b"Content-Length: %d\r\n\r\n%s" % (len(text), text))
        return number

    def read(self) -> dict[str, Any]:
        name, _, length = self.stream.readline().partition(b": ")
        assert name == b"Content-Length" and self.stream.readline() == b"\r\n", (name, length)
        return dict(json.loads(self.stream.read(int(length))))

    def event(self, name: str) -> dict[str, Any]:
        while (message := self.read()).get("event") != name:
            assert message["type"] != "response" or message["success"], message
        return dict(message["body"]) if "body" in message else {}

    def answer(self, number: int) -> dict[str, Any]:
        while (message := self.read()).get("request_seq") != number:
            pass
        assert message["success"], message
        return dict(message.get("body") or {})

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        return self.answer(self.send(command, **arguments))

    def frames(self) -> list[dict[str, Any]]:
        """The stack of the thread that stopped, its innermost frame first."""
        return list(self.ask("stackTrace", threadId=self.stopped["threadId"])["stackFrames"])

    def variables(self, frame: dict[str, Any]) -> dict[str, str]:
        """The local variables of a frame, as text."""
        scope = self.ask("scopes", frameId=frame["id"])["scopes"][0]
        variables = self.ask("variables", variablesReference=scope["variablesReference"])["variables"]
        return {variable["name"]: variable["value"] for variable in variables}

    def go_on(self) -> None:
        self.ask("continue", threadId=self.stopped["threadId"])


class Terminal:
    """A program in a terminal, with a person who reads and types."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.shown = ""

    def until(self, text: str) -> str:
        """The output since the last text, up to this one."""
        end = time.monotonic() + SECONDS
        while text not in self.shown:
            assert time.monotonic() < end, self.shown
            if select.select([self.descriptor], [], [], 1)[0]:
                self.shown += os.read(self.descriptor, 65536).decode(errors="replace")
        before, _, self.shown = self.shown.partition(text)
        return before

    def type(self, line: str) -> None:
        os.write(self.descriptor, f"{line}\n".encode())


@contextmanager
def terminal(*command: str) -> Iterator[Terminal]:
    ours, its = pty.openpty()
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, start_new_session=True) as process:
        os.close(its)
        try:
            yield Terminal(ours)
        finally:
            process.kill()
            os.close(ours)


def ray_debug(node: str, *options: str) -> tuple[str, ...]:
    """`ray debug` on a node, as documented."""
    return ("docker", "exec", "-it", "-e", "RAY_DEBUG=legacy", node, "ray", "debug", *options)


def node_of_the_breakpoint(file: str) -> str:
    """The Ray id of the node on which a breakpoint in a file waits, as `ray debug -v` on another one tells it."""
    with terminal(*ray_debug(HEAD, "-v")) as shown:
        for _refresh in range(SECONDS):
            table = shown.until("press enter to refresh:")
            rows = [line for line in table.splitlines() if file in line]
            if rows:
                return re.findall(r"[0-9a-f]{56}", rows[0])[-1]
            time.sleep(2)
            shown.type("")
    raise AssertionError(f"no breakpoint in {file}")
