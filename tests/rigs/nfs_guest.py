"""Real NFS for tests: a server and two mounts of its export, as of two machines, in a kernel of their own."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ansible
from rigs.image import REPO, image

MARK = "@answer "
BOOT_SECONDS = 90
# The collection and Ansible in the container, which only read them.
COLLECTION = "/collections/ansible_collections/argus/verl"
SITE = "/site"
PYTHONPATH = f"/collections:{SITE}:{COLLECTION}:{COLLECTION}/tests"


class NoGuestError(Exception):
    """The kernel does not start here, with the reason."""


@dataclass
class Guest:
    """The running kernel. /private and /again are two mounts of one export of uid 1000, with root_squash."""

    container: str
    process: subprocess.Popen[str]
    log: str = field(default="", init=False)

    @classmethod
    def start(cls) -> Guest:
        site = Path(ansible.__file__).resolve().parents[1]
        name = f"argus-verl-nfs-{os.getpid()}"
        command = ["docker", "run", "--rm", "--interactive", "--name", name, "--label", "argus.verl.rig=nfs"]
        command += ["--network", "none"]
        # The memory of the kernel is a file that it executes.
        command += ["--tmpfs", "/tmp:exec,size=640m", "--volume", f"{site}:{SITE}:ro"]
        command += ["--volume", f"{REPO}:{COLLECTION}:ro", image("nfs")]
        guest = cls(name, subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        timer = threading.Timer(BOOT_SECONDS, guest.stop)
        timer.start()
        try:
            guest.log = guest._answer()["stderr"]
            mounted = guest.run("findmnt", "--noheadings", "--types", "nfs4", "--output", "TARGET")
        except EOFError as error:
            raise NoGuestError("user-mode Linux did not start") from error
        finally:
            timer.cancel()
        if mounted.stdout.split() != ["/private", "/again"]:
            guest.stop()
            raise NoGuestError(f"user-mode Linux has no NFS: {guest.log}")
        return guest

    def stop(self) -> None:
        subprocess.run(["docker", "rm", "--force", self.container], capture_output=True, check=False)
        self.process.communicate()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout
        for line in self.process.stdout:
            _, mark, answer = line.partition(MARK)
            if mark:
                return dict(json.loads(answer))
        raise EOFError

    def run(self, *argv: str, uid: int = 0, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the guest."""
        assert self.process.stdin
        print(json.dumps({"argv": argv, "uid": uid, "env": env}), file=self.process.stdin, flush=True)
        answer = self._answer()
        return subprocess.CompletedProcess(argv, answer["rc"], answer["stdout"], answer["stderr"])

    def python(self, *arguments: str, uid: int = 0) -> str:
        """The output of Python code or a program, which can import the collection, its tests' helpers and Ansible."""
        code = ("-c",) if not arguments[0].endswith(".py") else ()
        env = {"PYTHONPATH": PYTHONPATH, "PYTHONDONTWRITEBYTECODE": "1", "HOME": "/tmp"}
        done = self.run("python3", *code, *arguments, uid=uid, **env)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def module(self, name: str, uid: int = 0, **arguments: Any) -> dict[str, Any]:
        """Run a module of the collection, as Ansible does on a machine."""
        return self.modules((name, uid, arguments))[0]

    def modules(self, *runs: tuple[str, int, Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Run modules at once, each as a user."""
        return list(json.loads(self.python(MODULES, json.dumps(runs))))


# ansible.module_utils reads the arguments of a module from a variable of its own.
MODULE = """
import json, runpy, sys
from ansible.module_utils import basic
basic._ANSIBLE_ARGS = json.dumps({"ANSIBLE_MODULE_ARGS": json.loads(sys.argv[2])}).encode()
basic._ANSIBLE_PROFILE = "legacy"
runpy.run_module("ansible_collections.argus.verl.plugins.modules." + sys.argv[1], run_name="__main__", alter_sys=True)
"""
MODULES = f"""
import json, subprocess, sys
started = [
    subprocess.Popen(
        [sys.executable, "-c", {MODULE!r}, name, json.dumps(arguments)], user=uid, group=uid, extra_groups=[],
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )
    for name, uid, arguments in json.loads(sys.argv[1])
]
outputs = [process.communicate()[0] for process in started]
print(json.dumps([json.loads(output[output.index("{{"):]) for output in outputs]))
"""
